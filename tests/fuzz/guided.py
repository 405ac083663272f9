"""One target under atheris: ``python -m tests.fuzz.guided TARGET SECONDS``; what is found is left as ``crash-…``."""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path

#: An extra of its own: it is large, and there is none for every machine.
atheris = importlib.import_module("atheris")

with atheris.instrument_imports(include=["producer", "workers", "pyiceberg.avro", "json"]):
    from tests.fuzz.bounds import apart, within
    from tests.fuzz.samples import Samples
    from tests.fuzz.targets import targets


def main(name: str, seconds: str) -> None:
    """Fuzz until the time is over, or something is found; libFuzzer ends the process."""
    with tempfile.TemporaryDirectory() as folder:
        target = targets(Samples.make(Path(folder)))[name]
    corpus = Path(tempfile.mkdtemp())
    for index, valid in enumerate(target.seeds):
        (corpus / str(index)).write_bytes(valid)
    run = apart if target.native else within
    options = [
        f"-max_total_time={seconds}",
        "-timeout=30",
        "-rss_limit_mb=4000",
        "-max_len=65536",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], str(corpus), *options], lambda data: run(target.run, data) and None)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
