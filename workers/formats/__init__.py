"""File formats: reading and writing of Parquet data files, position delete files and Puffin files.

Imports runtime, model and arrow.
Open format_model.py first.
"""
