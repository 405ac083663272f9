"""What is written for other processes says by which version of its schema: records on storage and messages alike.

Old and new workers share tables and queues while a fleet is upgraded. What is newer than the reader is sound, and
somebody else's to do; what does not keep to a version that the reader knows is corrupt.
"""

from __future__ import annotations

import json
from typing import Final, TypeGuard, TypeVar

from pydantic import ValidationError

from producer.common.errors import Corrupt, Newer, Reason, Refused
from producer.model.job import Value

V = TypeVar("V", bound=Value)

#: What this process writes, and the newest that it reads. It goes up when records or messages get other fields or
#: another meaning; without a number they count as of version 1.
SCHEMA = 1
#: Where a record says its version.
FIELD: Final = "schema"
#: Where a message does: its headers do not crowd its arguments in Flower.
HEADER: Final = "icefleet-schema"


def encode(value: Value) -> str:
    """A record as it is written: the value's JSON with its version ahead."""
    return f'{{"{FIELD}":{SCHEMA},{value.model_dump_json().removeprefix("{")}'


def decode(text: str | bytes, kind: type[V], name: str) -> V:
    """A record as it was written.

    Raises:
        Corrupt: it is no JSON, or not all of it, or no such record; the sentence has its name.
        Newer: a later version has written it.
    """
    try:
        content = json.loads(text.decode() if isinstance(text, bytes) else text)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"The record {name} cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise Corrupt(f"The record {name} cannot be read: it is no JSON object.")
    version = content.pop(FIELD, 1)
    if not _is_version(version):
        raise Corrupt(f"The record {name} cannot be read: {version!r} is no schema version.")
    if version > SCHEMA:
        raise Newer(f"The record {name}", version, SCHEMA)
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise Corrupt(f"The record {name} cannot be read: {complaint(error)}.") from error


def check_message(version: object) -> None:
    """Look at the version that a message's headers give, None where they give none.

    Raises:
        Refused: it is none.
        Newer: a later version has sent it.
    """
    if version is None:
        return
    if not _is_version(version):
        raise Refused(Reason.MESSAGE, f"The message is not understood: {version!r} is no schema version.")
    if version > SCHEMA:
        raise Newer("The message", version, SCHEMA)


def complaint(error: ValidationError) -> str:
    """What pydantic finds wrong first, in a line."""
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]


def _is_version(found: object) -> TypeGuard[int]:
    return type(found) is int and found >= 1
