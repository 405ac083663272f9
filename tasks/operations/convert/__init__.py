"""The operation ``convert``: equality deletes become position deletes or deletion vectors.

Imports the rooms that operations imports.
Open execute.py first, then conflicts.py.
"""
