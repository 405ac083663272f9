"""Celery: delivery of messages, retries, leases, heartbeats, recovery from dead workers, shutdown, the sweeper.

Imports no other room.
Open delivery.py first.
"""
