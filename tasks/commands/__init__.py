"""Commands of machines that run the fleet: ``icefleet worker``, ``beat`` and ``flower``.

Imports every other part of this package.
Open worker.py first.
"""
