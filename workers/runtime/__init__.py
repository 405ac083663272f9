"""The machine and its Spark session: memory budget, scratch space, tasks run side by side, errors.

Imports no other room.
Open session.py first.
"""
