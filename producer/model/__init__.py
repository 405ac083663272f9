"""Frozen values that travel between processes: jobs, plans, staged results, and how they are encoded.

Imports common. Loads neither Celery nor Redis nor a catalog, so that workers use the same values.
Open plan.py first.
"""
