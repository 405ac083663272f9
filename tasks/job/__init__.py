"""A job as its steps see it: its records, its table, the head of its branch, the commits on their way, its clean-up.

Imports messaging.
Open context.py first.
"""
