"""The Spark session of a process that ends."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from py4j import java_gateway

from workers.runtime import session


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, with the filters that it had at the end."""
    root = logging.getLogger()
    filters = list(root.filters)
    yield root
    root.filters[:] = filters


def test_connections_to_the_jvm_break_without_a_word(
    root: logging.Logger, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread of a worker that is stopped may be starting Spark."""
    monkeypatch.setattr(psutil.Process, "children", lambda self, recursive: [])
    caplog.set_level(logging.DEBUG)
    broken = root.makeRecord(
        "root", logging.ERROR, java_gateway.__file__, 1, "Exception while sending command.", (), None
    )
    own = root.makeRecord("root", logging.ERROR, __file__, 1, f"{Path(__file__).name} goes on", (), None)
    root.handle(broken)
    session.end()
    root.handle(broken)
    root.handle(own)
    assert [record.pathname for record in caplog.records] == [java_gateway.__file__, __file__]
