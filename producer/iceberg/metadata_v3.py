"""Table metadata of format version 3, which PyIceberg 0.12 reads but refuses to write."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.table.update import ValidatableTableRequirement
from pyiceberg.typedef import IcebergBaseModel


def next_row_id(metadata: TableMetadata) -> int:
    """First row id that is free; counted from the snapshots where the metadata leaves it out, as PyIceberg's may."""
    known: int | None = getattr(metadata, "next_row_id", None)
    if known is not None:
        return known
    return max(((s.first_row_id or 0) + (s.added_rows or 0) for s in metadata.snapshots), default=0)


def last_sequence_number(metadata: TableMetadata) -> int:
    """Highest sequence number that was given out; 0 in version 1."""
    return getattr(metadata, "last_sequence_number", 0)


def enable_version_3() -> None:
    """Let every catalog that writes metadata files itself (SQL, Glue, Hive…) write them in version 3 too.

    The model's serializer is complete, only switched off; what is missing of the spec is the required
    ``next-row-id``, which is filled in. Has no effect the second time, and none on versions 1 and 2.
    """
    TableMetadataV3.model_dump_json = _dump_version_3  # type: ignore[method-assign]


def _dump_version_3(
    self: TableMetadataV3, exclude_none: bool = True, exclude: Any | None = None, by_alias: bool = True, **kwargs: Any
) -> str:
    complete = self.model_copy(update={"next_row_id": next_row_id(self)})
    return IcebergBaseModel.model_dump_json(
        complete, exclude_none=exclude_none, exclude=exclude, by_alias=by_alias, **kwargs
    )


class AssertLastSequenceNumber(ValidatableTableRequirement):
    """The table's last sequence number is still the one that a snapshot was built on.

    Checked by the catalogs that PyIceberg itself implements, in the same compare-and-swap as the rest; without it two
    branches of a version 3 table could be given the same sequence number. REST catalogs check on their own.
    """

    type: Literal["assert-last-sequence-number"] = Field(default="assert-last-sequence-number")
    last_sequence_number: int = Field(alias="last-sequence-number")

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        """Raise CommitFailedException when another snapshot was committed meanwhile, on whatever branch."""
        found = None if base_metadata is None else last_sequence_number(base_metadata)
        if found != self.last_sequence_number:
            raise CommitFailedException(
                f"Requirement failed: last sequence number has changed: "
                f"expected {self.last_sequence_number}, found {found}"
            )
