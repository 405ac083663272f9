"""The way of a job: stage units, commit a round, plan again what conflicted, end.

Imports messaging, job and operations.
Open rounds.py first.
"""
