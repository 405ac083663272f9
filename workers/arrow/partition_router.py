"""The output partition of each row: as text in a column, and as the values that files are registered under."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import Transform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, PrimitiveType

from producer.model.partition_values import decode_value, encode_value, path_schema
from producer.model.plan import Scope
from workers.arrow.fields import Accessor, bits
from workers.arrow.transforms import apply_transform
from workers.model.delete_set import ContentFile
from workers.model.units import RewriteUnit

#: In texts; neither is a hexadecimal digit.
_SEPARATOR: Final = ","
_NULL: Final = "-"


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """One partition field: the column that it is made from, and its type."""

    source: Accessor
    transform: Transform[Any, Any]
    type: PrimitiveType

    def texts(self, batch: pa.RecordBatch) -> pa.Array | pa.Scalar:
        """Return the text of the field's value for each row; one scalar where it is always null."""
        if not self.source.path:
            return pa.scalar(_NULL)
        values = apply_transform(self.source.column(batch), self.source.type, self.transform)
        encoded = _encode(values)
        texts = [encode_value(self.type, value) for value in encoded.dictionary.to_pylist()]
        return pc.fill_null(pa.array(texts, pa.string()).take(encoded.indices), _NULL)


@dataclass(frozen=True, slots=True)
class PartitionRouter:
    """Finds the partition of each row.

    A partition's text is its tuple: hexadecimal single values (spec, Appendix D), comma-separated, ``-`` for null.
    Tuples are equal if and only if their texts are: null equals null, NaN equals NaN, -0.0 differs from 0.0.
    """

    spec: PartitionSpec
    #: The columns that the spec's paths are made from.
    sources: Schema
    #: Of each partition field, if rows are routed.
    columns: tuple[PartitionColumn, ...]
    #: The partition of each scope of the inputs; None where its rows go to several.
    scopes: tuple[Scope | None, ...]
    #: Partitions by their texts.
    known: dict[str, Scope]

    @classmethod
    def of(cls, unit: RewriteUnit, rows: pa.Schema) -> Self:
        """Return the router of what a unit writes, for rows of an Arrow schema with field ids.

        Raises:
            ValueError: rows are routed, and a partition field has no column, or one that is not primitive.
        """
        routed = unit.spec.fields if None in unit.scopes else ()
        columns = tuple(_partition_column(field, unit.schema, rows) for field in routed)
        known = {partition_text(scope.values): scope for scope in unit.scopes if scope is not None}
        types = {id_: unit.schema.find_type(id_) for id_ in unit.schema.field_ids}
        return cls(unit.spec, path_schema(unit.spec, types.get), columns, unit.scopes, known)

    def texts(self, file: ContentFile, batch: pa.RecordBatch) -> pa.Array:
        """Return the partition of each row of a file, as text.

        Raises:
            ValueError: a transform does not apply to a value.
        """
        scope = self.scopes[file.scope]
        if scope is not None:
            return pa.repeat(partition_text(scope.values), batch.num_rows)
        found = [column.texts(batch) for column in self.columns]
        if not any(isinstance(texts, pa.Array) for texts in found):
            return pa.repeat(_SEPARATOR.join(_NULL for _ in found), batch.num_rows)
        return pc.binary_join_element_wise(*found, _SEPARATOR)

    def encoded(self, file: ContentFile, batch: pa.RecordBatch) -> pa.DictionaryArray:
        """Return the same as :meth:`texts`, dictionary-encoded; raises the same."""
        scope = self.scopes[file.scope]
        if scope is None:
            return self.texts(file, batch).dictionary_encode()
        indexes = pa.repeat(pa.scalar(0, pa.int32()), batch.num_rows)
        return pa.DictionaryArray.from_arrays(indexes, pa.array([partition_text(scope.values)]))

    def partition(self, text: str) -> Scope:
        """Return the partition of a text of :meth:`texts`."""
        if text not in self.known:
            parts = text.split(_SEPARATOR) if self.columns else []
            values = tuple(None if part == _NULL else part for part in parts)
            record = Record(*(decode_value(column.type, v) for column, v in zip(self.columns, values, strict=True)))
            label = self.spec.partition_to_path(record, self.sources)
            self.known[text] = Scope(spec_id=self.spec.spec_id, values=values, label=label)
        return self.known[text]


def partition_text(values: tuple[str | None, ...]) -> str:
    """Return the values of a partition as text."""
    return _SEPARATOR.join(_NULL if value is None else value for value in values)


def _partition_column(field: PartitionField, schema: Schema, rows: pa.Schema) -> PartitionColumn:
    if isinstance(field.transform, VoidTransform):
        return PartitionColumn(Accessor(field.source_id, IntegerType(), ()), field.transform, IntegerType())
    if field.source_id not in schema.field_ids:
        raise ValueError(f"partition field {field.name} is made from column {field.source_id}, which was dropped")
    source = Accessor.of(field.source_id, schema, rows)
    result = field.transform.result_type(source.type)
    assert isinstance(result, PrimitiveType)
    return PartitionColumn(source, field.transform, result)


def _encode(values: pa.Array) -> pa.DictionaryArray:
    """Dictionary-encode values by the bits of their single values; every NaN is one value."""
    if pa.types.is_floating(values.type):
        # As bits, by which NaN equals NaN and -0.0 differs from 0.0.
        values = pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), values.type), values)
        encoded = bits(values).dictionary_encode()
        return pa.DictionaryArray.from_arrays(encoded.indices, encoded.dictionary.view(values.type))
    if pa.types.is_temporal(values.type):
        values = bits(values)
    return values.dictionary_encode()
