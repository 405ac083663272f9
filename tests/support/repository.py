"""Where the project lies."""

from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
