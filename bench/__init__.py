"""Measures Icefleet beside what one would pick instead, and beside the physical limit."""
