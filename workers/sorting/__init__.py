"""Sorting of the rows of a unit: sort keys, ranges, z-order, sorted runs and their merge.

Imports runtime, model, arrow, formats and deletes.
Open exchange.py first.
"""
