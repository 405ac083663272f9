"""The values that the engine is given and gives back.

Imports runtime.
Open delete_set.py first.
"""
