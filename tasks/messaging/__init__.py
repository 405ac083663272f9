"""Celery: delivery of messages, retries, what dead workers held, shutdown, the sweeper.

Imports no other room.
Open delivery.py first.
"""
