"""The start of the command ``icefleet``, outside of its packages: it says so where other modules hide them.

Names such as ``producer``, ``tasks`` and ``workers`` are in use elsewhere.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

#: Where Icefleet's packages lie, side by side.
_HERE = Path(__file__).resolve().parent
#: The exit status of what is refused.
_REFUSED = 2


def main() -> None:
    """Run the command line."""
    if (sentence := hidden("producer")) is not None:
        if "--json" in sys.argv:
            print(json.dumps({"status": "refused", "reason": sentence}))
        else:
            print(sentence, file=sys.stderr)
        sys.exit(_REFUSED)

    from producer.cli.main import main as run

    run()


def hidden(*packages: str) -> str | None:
    """A sentence about the first of Icefleet's packages in whose place Python finds another module, or None.

    Nothing is imported: what hides a package might do anything.
    """
    for package in packages:
        found = _place(package)
        if found is not None and _HERE / package not in (found.resolve(), found.resolve().parent):
            return (
                f"{found} hides Icefleet's package {package!r}, for Python finds it first: rename it, or keep its "
                "folder off Python's path (PYTHONPATH, or the folder that the program was started in)."
            )
    return None


def _place(package: str) -> Path | None:
    """Where Python finds a module: its file, or its folder if it has no file; None if it finds none."""
    module = sys.modules.get(package)
    spec = find_spec(package) if module is None else module.__spec__
    if spec is None:
        return Path(module.__file__) if module is not None and module.__file__ else None
    places = [spec.origin, *(spec.submodule_search_locations or ())]
    return next((Path(place) for place in places if place), None)


if __name__ == "__main__":
    main()
