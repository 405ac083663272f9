"""Arrow forms of Iceberg columns: schemas, canonical keys, transforms, partitions of rows.

Imports runtime and model.
Open schema.py first.
"""
