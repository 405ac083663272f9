"""How tasks end when neither their job nor their unit ended well, as Celery's events and so Flower show it."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from celery.exceptions import Ignore

from producer.common.redaction import masked

#: An event that has a task shown as RETRY, without counting as a retry.
RETRY_STATE: Final = "task-retry"


class Unsuccessful(Exception):
    """The job or the unit ended badly: the task ends as FAILURE, and the text is the sentence that a person reads.

    All work of the task is done: its message is acknowledged, and nothing is tried again.
    """

    def __repr__(self) -> str:
        """The sentence alone: it is what the event of a failed task carries."""
        return str(self)


class Unfinished(Ignore):
    """The task ends without a verdict on its job or unit, and tells so by an event of its own.

    One task id stands for every message about the same thing, and who shows events takes a success for the last word on
    a task: what is not the last word must not be shown as a success.
    """

    #: What is sent; the last one's name is the state that is shown.
    events: ClassVar[tuple[str, ...]]

    @property
    def told(self) -> dict[str, Any]:
        """What goes along with the events."""
        return {"result": masked(str(self))}


class Waits(Unfinished):
    """There is nothing to do for the moment; another message follows."""

    events = ("task-waiting",)


class Cancelled(Unfinished):
    """The job was cancelled.

    Who shows events takes a revocation for older than progress, unless a retry came in between.
    """

    events = (RETRY_STATE, "task-revoked")


class Late(Unfinished):
    """The job has ended already; what its tasks are known to have come to stays."""

    events = ("task-revoked",)

    @property
    def told(self) -> dict[str, Any]:
        """Nothing: it would take the place of what an earlier message of the task has told."""
        return {}
