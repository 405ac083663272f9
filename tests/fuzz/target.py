"""One reader that is fuzzed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """One reader.

    Attributes:
        seeds: Valid bytes, which it must read.
        run: Reads bytes, and raises what is no error of ours; true when it took them for valid.
    """

    name: str
    seeds: tuple[bytes, ...]
    run: Callable[[bytes], bool]
    #: Whether native code reads the bytes that may end its process.
    native: bool = False
