"""The command line ``icefleet``.

Imports every other part of this package.
Open main.py first: it lists the commands.
"""
