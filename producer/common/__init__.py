"""What every other room stands on: errors, settings, redaction of secrets, and the storage beside a table.

Imports no other room.
Open errors.py first: its classes say what the caller does next.
"""
