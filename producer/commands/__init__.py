"""The commands of ``icefleet``, by what they are about."""
