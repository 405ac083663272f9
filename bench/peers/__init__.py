"""What a user would pick instead of Icefleet, in an environment of its own."""
