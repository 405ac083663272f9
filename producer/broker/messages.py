"""What messages ask for: their arguments as value objects. Messages are data, and this is all that they can say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ConfigDict, Field, ValidationError

from producer.common.errors import Reason, Refused
from producer.model.codec import complaint
from producer.model.job import JobId, Request, Value


class Order(Value):
    """A message about a job that was planned; numbers are numbers and not texts of them."""

    model_config = ConfigDict(strict=True)

    table: str
    job: str


class UnitOrder(Order):
    """Asks for one unit to be staged."""

    #: For whoever looks at the queue.
    partition: str
    round: int = Field(ge=0)
    unit: int = Field(ge=0)


class CommitOrder(Order):
    """Asks for a round to be committed, once all of it is staged."""


O = TypeVar("O", bound=Order)  # noqa: E741


def request_of(arguments: Mapping[str, Any]) -> Request:
    """The request that a plan message carries.

    Raises:
        Refused: it carries none.
    """
    name = _name(arguments.get("job"), arguments.get("table"))
    if repeated := arguments.keys() & {"operation", "catalog"}:
        raise _refused(f"{min(repeated)} follows from the job's id")
    try:
        asked = {"operation": name.operation, "catalog": name.catalog, **arguments}
        return Request.model_validate(asked, strict=True)
    except ValidationError as error:
        raise _refused(complaint(error)) from error


def order_of(kind: type[O], arguments: Mapping[str, Any]) -> O:
    """What any other message asks for.

    Raises:
        Refused: its arguments are not those that it takes.
    """
    _name(arguments.get("job"), arguments.get("table"))
    try:
        return kind.model_validate(dict(arguments))
    except ValidationError as error:
        raise _refused(complaint(error)) from error


def _name(job: Any, table: Any) -> JobId:
    if not isinstance(job, str):
        raise _refused(f"its job is {job!r:.80}")
    name = JobId.parse(job)
    if name.table != table:
        raise _refused(f"its table is {table!r:.80}, its job's {name.table!r}")
    return name


def _refused(why: str) -> Refused:
    return Refused(Reason.MESSAGE, f"The message is not understood: {why}.")
