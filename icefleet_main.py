"""The command ``icefleet`` starts here, in a module outside of the packages ``producer``, ``tasks`` and ``workers``.

Many projects have modules of these names. If Python finds another ``producer`` first, in the current folder or on
``PYTHONPATH``, a command that starts in ``producer`` would run the code of that project, or end with ``No module named
'producer.cli'``. This module's name is Icefleet's own. It imports nothing but the standard library until it has looked
for such modules, and names the file that is in the way. Applications that enqueue may have ``tasks`` and ``workers`` of
their own: ``import producer`` needs neither.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

#: The folder of Icefleet's packages.
_FOLDER = Path(__file__).resolve().parent
#: The exit status of a refused command.
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
    """Return a sentence about the first of Icefleet's packages that another module hides, or None.

    Nothing is imported: the other module might do anything.
    """
    for package in packages:
        found = _find(package)
        if found is not None and _FOLDER / package not in (found.resolve(), found.resolve().parent):
            return (
                f"{found} hides Icefleet's package {package!r}, for Python finds it first: rename it, or keep its "
                "folder off Python's path (PYTHONPATH, or the folder that the program was started in)."
            )
    return None


def _find(package: str) -> Path | None:
    """Return the file of a module as Python finds it, its folder if it has no file, or None."""
    module = sys.modules.get(package)
    spec = find_spec(package) if module is None else module.__spec__
    if spec is None:
        return Path(module.__file__) if module is not None and module.__file__ else None
    places = [spec.origin, *(spec.submodule_search_locations or ())]
    return next((Path(place) for place in places if place), None)


if __name__ == "__main__":
    main()
