"""Encoding of records and messages with their schema version.

Old and new workers share tables and queues while a fleet is upgraded. What has a newer version than the reader knows is
sound, and left to a process of that version. What does not fit a version that the reader knows is corrupt.
"""

from __future__ import annotations

import json
from typing import Final, TypeVar

from pydantic import ValidationError

from producer.common.errors import Corrupt, Newer, Reason, Refused
from producer.model.job import Value

V = TypeVar("V", bound=Value)

#: The version that this process writes, and the newest that it reads. It goes up when fields of records or messages, or
#: their meanings, change. A record or message without a version has version 1.
SCHEMA = 1
#: The field of a record that holds its version.
FIELD: Final = "schema"
#: The header of a message that holds its version: in a header it does not crowd the arguments in Flower.
HEADER: Final = "icefleet-schema"


def encode(value: Value) -> str:
    """Return a record: the value's JSON, with the schema version first."""
    return f'{{"{FIELD}":{SCHEMA},{value.model_dump_json().removeprefix("{")}'


def decode(text: str | bytes, kind: type[V], name: str) -> V:
    """Return the value of a record; errors have its name.

    Raises:
        Corrupt: The record is not JSON, is incomplete, or does not fit the class.
        Newer: A later version wrote it.
    """
    try:
        content = json.loads(text.decode() if isinstance(text, bytes) else text)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"The record {name} cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise Corrupt(f"The record {name} cannot be read: it is no JSON object.")
    version = content.pop(FIELD, 1)
    if not _is_known(version, f"The record {name}"):
        raise Corrupt(f"The record {name} cannot be read: {version!r} is no schema version.")
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise Corrupt(f"The record {name} cannot be read: {first_problem(error)}.") from error


def check_message(version: object) -> None:
    """Check the version in a message's headers; None if they have none.

    Raises:
        Refused: It is not a version.
        Newer: A later version sent the message.
    """
    if version is not None and not _is_known(version, "The message"):
        raise Refused(Reason.MESSAGE, f"The message is not understood: {version!r} is no schema version.")


def first_problem(error: ValidationError) -> str:
    """Return the first problem that pydantic found, in one line."""
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]


def _is_known(version: object, what: str) -> bool:
    """Return whether something is a version that this process reads; a later version raises Newer."""
    if type(version) is not int or version < 1:
        return False
    if version > SCHEMA:
        raise Newer(f"{what} asks for schema {version} and this process knows {SCHEMA}: upgrade it.")
    return True
