"""``icefleet`` of the next version, as far as others can tell: it knows schema 2, and writes it."""

from __future__ import annotations

from producer.cli.main import main
from producer.model import codec as versions
from tests.fleet.worker_without_spark import start_no_session

if __name__ == "__main__":
    versions.SCHEMA = 2
    start_no_session()
    main()
