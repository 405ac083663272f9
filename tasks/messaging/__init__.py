"""Celery: delivery of messages, retries, leases, heartbeats, recovery from dead workers, the sweeper.

Imports no other room.
Open delivery.py first.
"""
