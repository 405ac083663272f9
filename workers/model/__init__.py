"""The values that the engine is given and gives back.

Imports runtime.
Open convert_unit.py first.
"""
