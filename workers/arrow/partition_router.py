"""The partitions that rows are written into: as text in a column, and as the values that files are registered under."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import Transform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, IntegerType, NestedField, PrimitiveType, UUIDType

from workers.arrow.fields import Source, bits
from workers.arrow.transforms import transformed
from workers.model.rewrite_unit import Input, Partition, RewriteUnit

#: In texts: neither is a hexadecimal digit.
_BETWEEN: Final = ","
_NULL: Final = "-"


@dataclass(frozen=True, slots=True)
class Part:
    """One partition field of the rows: where it comes from, and its type."""

    source: Source | None
    transform: Transform[Any, Any]
    type: PrimitiveType

    def texts(self, batch: pa.RecordBatch) -> pa.Array | pa.Scalar:
        """Its text for each row; one for all where it is null by definition."""
        if self.source is None or not self.source.path:
            return pa.scalar(_NULL)
        values = transformed(self.source.column(batch), self.source.type, self.transform)
        encoded = _distinct(values)
        texts = [self._text(value) for value in encoded.dictionary.to_pylist()]
        return pc.fill_null(pa.array(texts, pa.string()).take(encoded.indices), _NULL)

    def _text(self, value: Any) -> str:
        return to_bytes(self.type, value).hex()


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How rows find their partition.

    A partition's text is its tuple: hexadecimal single values (spec, Appendix D), comma-separated, ``-`` for null.
    Tuples are equal if and only if their texts are: null equals null, NaN equals NaN, -0.0 differs from 0.0.
    """

    spec: PartitionSpec
    #: The columns that the spec's paths are made from.
    sources: Schema
    parts: tuple[Part, ...]
    #: Of each scope of the inputs; None where its rows go to several.
    scopes: tuple[Partition | None, ...]
    known: dict[str, Partition]

    @classmethod
    def of(cls, unit: RewriteUnit, rows: pa.Schema) -> Self:
        """The partitioning of what a unit writes, for rows of an Arrow schema with field ids.

        Raises:
            ValueError: rows are to be routed and a partition field has no column, or is no primitive one.
        """
        routed = None in unit.scopes
        parts = tuple(_part(field, unit.schema, rows, routed) for field in unit.spec.fields)
        known = {text_of(scope.values): scope for scope in unit.scopes if scope is not None}
        return cls(unit.spec, _sources(unit.spec, unit.schema), parts, unit.scopes, known)

    def texts(self, file: Input, batch: pa.RecordBatch) -> pa.Array:
        """The partition of each row of a file, as text.

        Raises:
            ValueError: a value is none that its transform takes.
        """
        scope = self.scopes[file.scope]
        if scope is not None:
            return pa.repeat(text_of(scope.values), batch.num_rows)
        found = [part.texts(batch) for part in self.parts]
        if not any(isinstance(texts, pa.Array) for texts in found):
            return pa.repeat(_BETWEEN.join(_NULL for _ in found), batch.num_rows)
        return pc.binary_join_element_wise(*found, _BETWEEN)

    def encoded(self, file: Input, batch: pa.RecordBatch) -> pa.DictionaryArray:
        """The same as a dictionary and indexes into it; ValueError likewise."""
        scope = self.scopes[file.scope]
        if scope is None:
            return self.texts(file, batch).dictionary_encode()
        indexes = pa.repeat(pa.scalar(0, pa.int32()), batch.num_rows)
        return pa.DictionaryArray.from_arrays(indexes, pa.array([text_of(scope.values)]))

    def partition(self, text: str) -> Partition:
        """The partition of a text that :meth:`texts` gave."""
        if (found := self.known.get(text)) is not None:
            return found
        parts = text.split(_BETWEEN) if self.parts else []
        values = tuple(None if part == _NULL else part for part in parts)
        record = Record(*(_value(part.type, value) for part, value in zip(self.parts, values, strict=True)))
        return Partition(values, self.spec.partition_to_path(record, self.sources))


def text_of(values: tuple[str | None, ...]) -> str:
    """A partition's values as text."""
    return _BETWEEN.join(_NULL if value is None else value for value in values)


def _part(field: PartitionField, schema: Schema, rows: pa.Schema, routed: bool) -> Part:
    if not routed or isinstance(field.transform, VoidTransform) or field.source_id not in schema.field_ids:
        if routed and not isinstance(field.transform, VoidTransform):
            raise ValueError(f"partition field {field.name} is made from column {field.source_id}, which is gone")
        return Part(None, field.transform, IntegerType())
    source = Source.of(field.source_id, schema, rows)
    result = field.transform.result_type(source.type)
    assert isinstance(result, PrimitiveType)
    return Part(source, field.transform, result)


def _sources(spec: PartitionSpec, schema: Schema) -> Schema:
    """A schema of the spec's sources; a void field may have lost its own."""
    types: dict[int, IcebergType] = {
        field.source_id: schema.find_type(field.source_id) if field.source_id in schema.field_ids else IntegerType()
        for field in spec.fields
    }
    return Schema(*(NestedField(id_, f"source_{id_}", type_, required=False) for id_, type_ in types.items()))


def _distinct(values: pa.Array) -> pa.DictionaryArray:
    """Values by the bits of the single values that they become; every NaN as one."""
    if pa.types.is_floating(values.type):
        # As bits, by which NaN equals NaN and -0.0 differs from 0.0.
        values = pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), values.type), values)
        encoded = bits(values).dictionary_encode()
        return pa.DictionaryArray.from_arrays(encoded.indices, encoded.dictionary.view(values.type))
    if pa.types.is_temporal(values.type):
        values = bits(values)
    return values.dictionary_encode()


def _value(type_: PrimitiveType, text: str | None) -> Any:
    """A value as manifests have it."""
    if text is None:
        return None
    data = bytes.fromhex(text)
    return UUID(bytes=data) if isinstance(type_, UUIDType) else from_bytes(type_, data)
