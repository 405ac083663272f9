"""The options of a compaction, with the names and defaults of Iceberg's ``rewrite_data_files``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from producer.common.errors import Reason, Refused, suggest
from producer.common.sizes import parse_size
from producer.model.plan import Strategy


class Tier(StrEnum):
    """How thorough a compaction is: presets of other options, each of which can still be given.

    * ``minor`` keeps up with a stream: it takes small files only, those below ``min-file-size-bytes``, which defaults
      to an eighth of the target here. Five of them in a partition are merged. A small file that any delete file reaches
      is rewritten alone, since the newest deletes of a stream are for what it wrote just before. Larger files are left
      alone, whatever their deletes, and are not split.
    * ``major`` applies the thresholds.
    * ``full`` rewrites every file.
    """

    MINOR = "minor"
    MAJOR = "major"
    FULL = "full"


class JobOrder(StrEnum):
    """Which file groups are rewritten first."""

    NONE = "none"
    BYTES_ASC = "bytes-asc"
    BYTES_DESC = "bytes-desc"
    FILES_ASC = "files-asc"
    FILES_DESC = "files-desc"


#: Bytes. A smaller size without a unit is likely a mistake.
_MIN_WITHOUT_UNIT: Final = 1 << 16

#: The defaults of each tier. The min-file-size-bytes of ``minor`` follows from the target size: see rewrite_options.py.
_PRESETS: Final = {Tier.MINOR: {"delete-file-threshold": "1"}, Tier.MAJOR: {}, Tier.FULL: {"rewrite-all": "true"}}

#: A comma outside of backticks: an even number of them follows.
_COMMA: Final = re.compile(r",(?=(?:[^`]*`[^`]*`)*[^`]*$)")


def _names(text: object) -> object:
    """Split names separated by commas; in backticks, doubled inside of them, a name may be any text."""
    return tuple(_unquote(name.strip()) for name in _COMMA.split(text)) if isinstance(text, str) else text


def _unquote(name: str) -> str:
    return name[1:-1].replace("``", "`") if len(name) > 2 and name[0] == name[-1] == "`" else name


def _quote(name: str) -> str:
    """Return a name as it is in a list of names separated by commas."""
    return f"`{name.replace('`', '``')}`" if name != name.strip() or "," in name or "`" in name else name


def _bytes(text: object) -> object:
    """Return the bytes of a size such as ``128MB``."""
    return parse_size(text) if isinstance(text, str) else text


Size = Annotated[int, Field(ge=1, lt=1 << 63), BeforeValidator(_bytes)]
Count = Annotated[int, Field(ge=1, lt=1 << 63)]


class Options(BaseModel):
    """The options of a compaction. If an option is None, the table or another option decides.

    The fields' descriptions appear in ``icefleet compact --help``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=lambda name: name.replace("_", "-"))

    tier: Tier = Field(
        Tier.MAJOR, description="minor: small files only; major: what the thresholds select; full: every file."
    )
    strategy: Strategy = Field(Strategy.BINPACK, description="How rows are arranged: binpack, sort or zorder.")
    sort_order: str | None = Field(
        None, min_length=1, description='Such as "id desc nulls last, bucket(16, name)"; default: the table\'s order.'
    )
    zorder: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_names)] = Field(
        (), description="Columns whose values are interleaved, separated by commas."
    )
    target_file_size_bytes: Size | None = Field(
        None, description="Size of a written file; default: write.target-file-size-bytes of the table, or 512 MB."
    )
    min_file_size_bytes: Annotated[int, Field(ge=0, lt=1 << 63), BeforeValidator(_bytes)] | None = Field(
        None, description="Smaller files are rewritten; default: 75 % of the target."
    )
    max_file_size_bytes: Size | None = Field(None, description="Larger files are split; default: 180 % of the target.")
    min_input_files: Count = Field(5, description="A group of this many files is rewritten in any case; default: 5.")
    rewrite_all: bool = Field(False, description="Rewrite every file, whatever its size and deletes.")
    max_file_group_size_bytes: Size = Field(
        100 << 30, description="The most that is rewritten as one file group; default: 100 GB."
    )
    max_files_to_rewrite: Count | None = Field(None, description="Rewrite at most this many files; default: all.")
    delete_file_threshold: Count | None = Field(
        None, description="Rewrite files that this many delete files reach; default: no limit."
    )
    delete_ratio_threshold: Annotated[float, Field(gt=0, le=1)] = Field(
        0.3, description="Rewrite files if this share of their rows is known to be deleted; default: 0.3."
    )
    rewrite_job_order: JobOrder = Field(
        JobOrder.NONE, description="none, bytes-asc, bytes-desc, files-asc or files-desc: which groups come first."
    )
    output_spec_id: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Partition spec of written files; default: the table's."
    )
    use_starting_sequence_number: bool = Field(
        True, description="Written files get the sequence number of the snapshot they come from; on by default."
    )
    remove_dangling_deletes: bool = Field(
        True, description="Drop delete files that reach no data file any more; on by default."
    )

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """Parse options; the tier's defaults apply to those that are not given.

        Raises:
            Refused: An option is unknown, has a value that is not allowed, or does not fit another one.
        """
        for name in given:
            if name not in OPTION_FIELDS:
                hint = suggest(name.lower().replace("_", "-"), OPTION_FIELDS)
                raise Refused(Reason.USAGE, f"There is no option {name!r}{hint}")
        given = _accept_zorder(given)
        try:
            tier = cls.model_validate({"tier": given["tier"]} if "tier" in given else {}).tier
            options = cls.model_validate({**_PRESETS[tier], **_with_strategy(given)})
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0])
            raise Refused(Reason.USAGE, f"{name}={given[name]!r} is not allowed: {_allowed(name)}.") from error
        options._check(given)
        return options

    def _check(self, given: Mapping[str, str]) -> None:
        """Check that options fit each other, as far as that is known without the table."""
        for name, strategy in (("sort-order", Strategy.SORT), ("zorder", Strategy.ZORDER)):
            if name in given and self.strategy is not strategy:
                sentence = f"{name}={given[name]!r} goes with strategy={strategy}, not {self.strategy}."
                raise Refused(Reason.USAGE, sentence)
        if self.strategy is Strategy.ZORDER and not self.zorder:
            raise Refused(Reason.USAGE, "strategy=zorder needs columns: give them as zorder, such as zorder=id,day.")


#: The fields of options, by option name.
OPTION_FIELDS: Final = MappingProxyType({str(field.alias): field for field in Options.model_fields.values()})

_ALLOWED: Final = {
    "tier": f"one of {', '.join(Tier)}",
    "strategy": f"one of {', '.join(Strategy)}",
    "sort-order": "columns, such as id desc nulls last",
    "zorder": "names of columns, separated by commas",
    "min-file-size-bytes": "a whole number of bytes, 0 or more, or a size such as 96MB",
    "delete-ratio-threshold": "a number above 0, 1 at most",
    "rewrite-job-order": f"one of {', '.join(JobOrder)}",
    "output-spec-id": "the id of a partition spec",
}


def encode_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Return options as text, as requests carry them, without those that are None.

    Sizes become bytes: workers of earlier releases know no units. Lists become text separated by commas.

    Raises:
        Refused: The value of an option has no text, such as a mapping, or a size lacks its unit.
    """
    return {name: _text(name, value) for name, value in options.items() if value is not None}


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if name.endswith("-bytes"):
        with suppress(ValueError):  # Options.parse refuses it
            size, text = parse_size(str(value)), str(value).strip()
            if text.isdecimal() and 0 < size < _MIN_WITHOUT_UNIT:
                sentence = f"{name}={text} is {text} bytes: write {text}MB, or {text}b if that is meant."
                raise Refused(Reason.USAGE, sentence)
            return str(size)
    if isinstance(value, (bytes, Mapping, Set)):  # a set has no order
        kind = type(value).__name__
        allowed = _allowed(name) if name in OPTION_FIELDS else "text"
        raise Refused(Reason.USAGE, f"{name}={value!r} is not allowed, since it is a {kind}: {allowed}.")
    if isinstance(value, str) or not isinstance(value, Iterable):
        return str(value)
    return ",".join(map(_quote if name == "zorder" else str, map(str, value)))


def _with_strategy(given: Mapping[str, str]) -> Mapping[str, str]:
    """Derive the strategy from a sort order, or from z-order columns, if it is not given."""
    implied = [strategy for name, strategy in (("sort-order", "sort"), ("zorder", "zorder")) if name in given]
    return {"strategy": implied[0], **given} if implied else given


def _accept_zorder(given: Mapping[str, str]) -> Mapping[str, str]:
    """Accept a z-order as a sort order, as in Spark's procedure: ``sort_order => 'zorder(a, b)'``."""
    order = given.get("sort-order", "").strip()
    if not (order.lower().startswith("zorder(") and order.endswith(")")) or given.get("strategy") == Strategy.BINPACK:
        return given
    rest = {name: text for name, text in given.items() if name not in ("sort-order", "strategy")}
    return {**rest, "strategy": Strategy.ZORDER, "zorder": order[len("zorder(") : -1]}


def _allowed(name: str) -> str:
    if name in _ALLOWED:
        return _ALLOWED[name]
    if OPTION_FIELDS[name].annotation is bool:
        return "true or false"
    if name.endswith("-bytes"):
        return "a whole number of bytes above 0, or a size such as 128MB"
    return "a whole number from 1 on"
