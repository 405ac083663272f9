"""Files of tables whose locations name no folder of a machine."""

from __future__ import annotations

from typing import Any

from pyiceberg.io.pyarrow import PyArrowFileIO

#: Where all such tables lie.
LAKE = "lake://tables"


class LakeIO(PyArrowFileIO):
    """Files below `lake://` in the folder that the property `lake` names, and all others where they are."""

    @staticmethod
    def parse_location(location: str, properties: Any = None) -> tuple[str, str, str]:
        """Return the scheme, the network location and the path."""
        if location.startswith("lake://"):
            return "file", "", f"{(properties or {})['lake']}/{location.removeprefix('lake://')}"
        return PyArrowFileIO.parse_location(location, properties or {})


def lake_properties(folder: object) -> dict[str, str]:
    """Return the properties of a catalog whose tables are read from a folder."""
    return {"py-io-impl": f"{LakeIO.__module__}.{LakeIO.__name__}", "lake": str(folder)}
