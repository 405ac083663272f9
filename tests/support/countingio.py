"""A FileIO that notes every file it opens, in whatever process that happens."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

_NOTES = "notes"


class CountingIO(PyArrowFileIO):
    """Counts through a file, since Spark's tasks hold copies of it."""

    def new_input(self, location: str) -> PyArrowFile:
        """Note the location; one input is made each time that a file is opened."""
        descriptor = os.open(self.properties[_NOTES], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{location}\n".encode())
        os.close(descriptor)
        return super().new_input(location)


def counting_io(notes: Path) -> CountingIO:
    """A FileIO that notes what it opens in a file."""
    return CountingIO({_NOTES: str(notes)})


def opened(notes: Path) -> Counter[str]:
    """How often each file was opened."""
    return Counter(notes.read_text().splitlines()) if notes.exists() else Counter()
