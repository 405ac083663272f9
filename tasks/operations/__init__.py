"""What each operation does with a unit, and when what it staged may be committed.

Imports messaging and job.
Open base.py first: the protocol that an operation implements.
"""
