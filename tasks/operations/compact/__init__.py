"""The operation ``compact``: data files are rewritten.

Imports the rooms that operations imports.
Open execute.py first, then conflicts.py.
"""
