"""Parquet, as a format of data and delete files: the only code of the workers that uses Arrow's Parquet module.

Imports what the room imports.
Open format_model.py first.
"""
