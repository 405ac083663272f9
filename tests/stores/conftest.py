"""What tests of object stores share: a running store of each kind, and a catalog for each way to access it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.stores import INSTALLED, STORES, Store, missing, running

#: Below those of the other tests.
_PORT = 14_000 + 10 * (os.getpid() % 500)
_PORTS = {name: _PORT + 2 * number for number, name in enumerate(STORES)}
#: Ways to access files, and PyIceberg's name for each; Icefleet's own needs none.
ACCESSES = {
    "icefleet": None,
    "pyarrow": "pyiceberg.io.pyarrow.PyArrowFileIO",
    "fsspec": "pyiceberg.io.fsspec.FsspecFileIO",
}
#: The clients of FsspecFileIO pin versions of others that this project's environment has: they lie apart.
FSSPEC = INSTALLED / "python"


def settings_of(catalog: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The variables by which PyIceberg is given a catalog's properties."""
    names = {name: name.replace(".", "__").replace("-", "_") for name in properties}
    return {f"PYICEBERG_CATALOG__{catalog}__{names[name]}".upper(): value for name, value in properties.items()}


# PyIceberg reads its configuration when it is first imported.
_FOLDER = tempfile.TemporaryDirectory(prefix="icefleet-stores-")
for _name, _port in _PORTS.items():
    _store = Store(_name, _port)
    for _access, _implementation in ACCESSES.items():
        _properties = {
            "type": "sql",
            "uri": f"sqlite:///{_FOLDER.name}/{_name}-{_access}.db",
            "warehouse": _store.location("warehouse"),
            **(_store.fsspec_properties if _access == "fsspec" else _store.properties),
            **({"py-io-impl": _implementation} if _implementation else {}),
        }
        os.environ |= settings_of(f"{_name}-{_access}", _properties)
#: Else gcsfs asks for the kind of a bucket by gRPC, for a minute.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
if FSSPEC.exists():
    sys.path.insert(0, str(FSSPEC))


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Store]]:
    """The stores that run so far, by name."""
    with ExitStack() as stack:

        class Running(dict[str, Store]):
            def __missing__(self, name: str) -> Store:
                if (reason := missing(name)) is not None:
                    pytest.skip(reason)
                folder = Path(tmp_path_factory.mktemp(name))
                self[name] = stack.enter_context(running(name, folder, _PORTS[name]))
                return self[name]

        yield Running()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, servers: dict[str, Store]) -> Store:
    """Each of the stores."""
    return servers[request.param]


@pytest.fixture
def versitygw(servers: dict[str, Store]) -> Store:
    """The strict one."""
    return servers["versitygw"]
