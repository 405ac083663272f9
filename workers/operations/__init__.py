"""What is done with a unit: deletes converted, or data files rewritten.

Imports every other room.
Open convert.py first, then rewrite.py.
"""
