"""Which rows the deletes of a unit remove: delete files are spooled, indexed, and joined with data files.

Imports runtime, model, arrow and formats.
Open resolve.py first.
"""
