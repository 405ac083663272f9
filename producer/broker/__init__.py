"""Redis and the message queue: messages to workers, the registry of jobs, leases of units.

Imports common, model, iceberg, state and planning.
Open queue.py first.
"""
