"""Compaction of data files with every delete applied: definition, options and planner."""
