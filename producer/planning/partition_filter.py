"""The partition filter: which partitions a ``--where`` selects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.parser import parse, predicate
from pyiceberg.expressions.visitors import (
    bind,
    expression_evaluator,
    extract_field_ids,
    inclusive_projection,
    strict_projection,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Record
from pyparsing import ParseException

from producer.common.errors import Reason, Refused, first_line
from producer.iceberg.partitions import partition_path, partition_type

_EXAMPLE: Final = "an example: day = '2024-05-01' and region = 'eu'"
#: Characters of a filter that an error shows from the place on that cannot be understood.
_SHOWN: Final = 40


class PartitionFilter:
    """A filter that selects whole partitions.

    A partition of the default spec is either selected or not; a filter that selects only a part of one is refused. A
    partition of an older spec is selected if all of its rows are.

    ``where`` is the expression as PyIceberg parses it; None selects every partition.

    Raises:
        Refused: The expression cannot be parsed, or names a column that is unknown or does not partition the table.
    """

    def __init__(self, where: str | None, metadata: TableMetadata) -> None:
        self._where = where
        self._metadata = metadata
        self._schema = metadata.schema()
        self._expression = AlwaysTrue() if where is None else self._parse(where)
        self._evaluators: dict[int, tuple[Callable[[Record], bool], Callable[[Record], bool]]] = {}

    @property
    def selects_all(self) -> bool:
        """Whether there is no filter."""
        return self._where is None

    def selects(self, spec_id: int, partition: Record) -> bool:
        """Return whether the filter selects a partition.

        Raises:
            Refused: The filter selects only a part of it.
        """
        if self.selects_all:
            return True
        if spec_id not in self._evaluators:
            self._evaluators[spec_id] = self._evaluators_of(self._metadata.specs()[spec_id])
        may, must = self._evaluators[spec_id]
        if must(partition):
            return True
        if may(partition) and spec_id == self._metadata.default_spec_id:
            label = partition_path(self._metadata, self._metadata.specs()[spec_id], partition)
            sentence = f"--where {self._where!r} selects only a part of partition {label}: select whole partitions."
            raise Refused(Reason.WHERE, sentence)
        return False

    def _evaluators_of(self, spec: PartitionSpec) -> tuple[Callable[[Record], bool], Callable[[Record], bool]]:
        schema = Schema(*partition_type(self._metadata, spec).fields)
        may = inclusive_projection(self._schema, spec)(self._expression)
        must = strict_projection(self._schema, spec)(self._expression)
        return expression_evaluator(schema, may, True), expression_evaluator(schema, must, True)

    def _parse(self, where: str) -> BooleanExpression:
        """Return a parsed filter whose values fit the columns, all of which partition the table."""
        expression = parse_filter(where)
        try:
            columns = extract_field_ids(bind(self._schema, expression, True))
        except Exception as error:  # unknown columns, and values that do not fit their column
            sentence = first_line(error)
            zoned = "Missing zone" in sentence or "with zone" in sentence
            example = "; an example: ts >= '2024-05-01T00:00:00+00:00'" if zoned else ""
            raise Refused(Reason.WHERE, f"--where {where!r} does not fit the table: {sentence}{example}.") from error
        fields = self._metadata.spec().fields
        sources = {field.source_id for field in fields if not isinstance(field.transform, VoidTransform)}
        if others := columns - sources:
            name = self._schema.find_column_name(min(others))
            known = ", ".join(str(self._schema.find_column_name(source)) for source in sorted(sources))
            hint = f"it is partitioned by {known}" if known else "it is not partitioned"
            raise Refused(Reason.WHERE, f"--where {where!r}: {name} does not partition the table; {hint}.")
        return expression


def parse_filter(where: str) -> BooleanExpression:
    """Parse a filter, without a table.

    Raises:
        Refused: The filter cannot be parsed; the sentence says from which character on.
    """
    try:
        return parse(where)
    except ParseException as error:
        sentence = f"--where {where!r} cannot be understood {_failure(error)}; {_EXAMPLE}."
        raise Refused(Reason.WHERE, sentence) from error
    except Exception as error:  # PyIceberg's literals raise errors of many kinds
        raise Refused(Reason.WHERE, f"--where {where!r} cannot be understood: {error}.") from error


def _failure(error: ParseException) -> str:
    """Return where parsing failed: the character, and the text from there on."""
    text, position = error.pstr, error.loc
    if not error.msg.startswith("Expected end of text"):  # a condition is expected there, and may fail further on
        try:
            predicate.parse_string(text[position:])
        except ParseException as inner:
            position += inner.loc
    position += len(text[position:]) - len(text[position:].lstrip())
    if not (rest := text[position:]):
        return f"at its end, character {position + 1}: something is missing"
    return f"from character {position + 1} on: {rest[:_SHOWN] + '…' * (len(rest) > _SHOWN)!r}"
