"""``python -m tests.fuzz``: fuzz one target or all of them, for a number of examples or for minutes.

By default hypothesis changes valid bytes. With ``--atheris``, where that is installed, the coverage of the code decides
which inputs are changed further.
"""

from __future__ import annotations

import argparse
import faulthandler
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.bounds import apart, bound_memory, within
from tests.fuzz.crafted import crafted
from tests.fuzz.mutations import mutated
from tests.fuzz.samples import Samples
from tests.fuzz.target import Target
from tests.fuzz.targets import targets

_EXAMPLES = """examples:
  python -m tests.fuzz --examples 2000
  python -m tests.fuzz --target puffin --minutes 10
  python -m tests.fuzz --target "manifest list" --atheris --minutes 5
"""


def main() -> None:
    """Fuzz as the command line says; the exit status says whether something was found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description=__doc__.partition("\n")[0],
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--target", action="append", help="what to fuzz, NAME or NAME:INPUTS; may be repeated")
    parser.add_argument("--examples", type=int, default=300, help="inputs for each target")
    parser.add_argument("--minutes", type=float, help="go on with other inputs for so long, for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--atheris", action="store_true", help="let coverage guide the changes")
    parser.add_argument("--file", type=Path, help="read this one file instead")
    asked = parser.parse_args()
    faulthandler.enable()
    with tempfile.TemporaryDirectory() as folder:
        samples = Samples.make(Path(folder))
        known = targets(samples)
    named = (name.partition(":") for name in asked.target or known)
    wanted = {name: int(number or asked.examples) for name, _, number in named}
    if strange := sorted(wanted.keys() - known.keys()):
        parser.error(f"there is no target {strange[0]!r}: {', '.join(known)}")
    if asked.atheris and find_spec("atheris") is None:
        parser.error("atheris is not installed: pip install -c constraints.txt '.[fuzz]', where there is one")
    chosen = [known[name] for name in wanted]
    for target in chosen:
        for valid in target.seeds:
            assert target.run(valid), f"{target.name} does not read what is valid"
    if asked.file is not None:
        print([within(target.run, asked.file.read_bytes()) for target in chosen])
    elif asked.atheris:
        sys.exit(max(_guided(target.name, asked.minutes or 1.0) for target in chosen))
    else:
        bound_memory()
        wrong = crafted(samples)
        for target in chosen:
            for what, data in wrong.get(target.name, {}).items():
                assert not within(target.run, data), f"{target.name}: {what}"
            _changed(target, wanted[target.name], asked.minutes, asked.seed)


def _changed(target: Target, examples: int, minutes: float | None, number: int) -> None:
    """Inputs that hypothesis makes; with minutes, round after round of them."""
    started, tried, taken = time.monotonic(), 0, 0
    while True:

        @seed(number)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )
        @given(mutated(target.seeds))
        def check(data: bytes) -> None:
            nonlocal tried, taken
            tried += 1
            taken += (apart if target.native else within)(target.run, data)

        check()
        number += 1
        if minutes is None or time.monotonic() - started > 60 * minutes:
            break
    print(f"{target.name}: {tried} inputs, {taken} taken, {time.monotonic() - started:.1f} s", flush=True)


def _guided(name: str, minutes: float) -> int:
    """Inputs that libFuzzer makes, in a process where the code under test is instrumented as it is imported."""
    command = [sys.executable, "-m", "tests.fuzz.guided", name, str(int(60 * minutes))]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    main()
