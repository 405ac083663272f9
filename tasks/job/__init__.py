"""A job as its steps see it: records, table, files it may delete, head of its branch, pending commits, clean-up.

Imports messaging.
Open context.py first.
"""
