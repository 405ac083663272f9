"""What every other room stands on: errors, settings, redaction of secrets, and the storage beside a table.

Imports no other room.
Open errors.py first: each error says what its caller does next.
"""
