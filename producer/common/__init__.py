"""What every other room stands on: errors, settings, redaction of secrets.

Imports no other room.
Open errors.py first: its classes say what the caller does next.
"""
