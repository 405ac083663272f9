"""Conversion of equality deletes into position deletes or deletion vectors: definition and planner."""
