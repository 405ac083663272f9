"""Settings: every ``ICEFLEET_…`` variable, its default and its range, in one place."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, DotEnvSettingsSource, SettingsConfigDict

from producer.common.errors import Reason, Refused, suggest
from producer.common.redaction import register_address
from producer.common.sizes import parse_size

PREFIX = "ICEFLEET_"
_REDIS: Final = ("redis", "rediss")
#: The smallest heap of Spark's, in MB, which a worker's memory has to hold; ``workers`` has the same number in bytes.
MIN_HEAP_MB: Final = 512
_EXAMPLE: Final = "redis://localhost:6379/0"

#: Variables with the prefix that are no settings: the folder of foreign tables that conformance tests read.
_NO_SETTINGS: Final = frozenset({f"{PREFIX}FIXTURES"})
#: Characters of a wrong value that an error shows.
_SHOWN: Final = 80


def _megabytes(value: object) -> object:
    """Return a size with its unit in MB, and anything else as it is."""
    if not isinstance(value, str) or value.strip().replace(".", "").isdigit():
        return value
    try:
        size = parse_size(value)
    except ValueError:
        return value
    return value if 0 < size < 1 << 20 else size >> 20


def _check_address(url: str, *, redis_only: bool) -> str:
    """Return a valid address unchanged; any password is valid.

    Raises:
        ValueError: The address is not valid; the text says what is missing.
    """
    if not url:
        return url
    scheme, separator, rest = url.partition("://")
    if not separator:
        likely = f"redis://{url}" if url.count(":") == 1 and "/" not in url.split(":")[0] else _EXAMPLE
        raise ValueError(f"has no scheme: write {likely}")
    if redis_only and scheme not in (*_REDIS, "unix"):
        raise ValueError(f"is not the address of a Redis: write one such as {_EXAMPLE}")
    if scheme not in _REDIS:
        return url
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  raises when it is none
    except ValueError:
        encode = "; special characters in a password must be percent-encoded (%23 for #)" if "@" in rest else ""
        raise ValueError(f"has no valid port: write one such as {_EXAMPLE}{encode}") from None
    if (database := parts.path.strip("/")) and not database.isdecimal():
        raise ValueError(f"ends with {database!r}, which is not the number of a database: write one such as {_EXAMPLE}")
    return url


Seconds = Annotated[int, Field(ge=1)]
Megabytes = Annotated[int, BeforeValidator(_megabytes)]


class Settings(BaseSettings):
    """The settings of a process, from the environment, then from a file ``.env``."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_file=".env", extra="ignore", frozen=True, hide_input_in_errors=True
    )

    broker_url: str = Field("", description="Celery broker, such as redis://host:6379/0; empty: work in this process")
    board_url: str = Field(
        "", description="Redis for reports, locks and the list of jobs; empty: the broker if it is Redis"
    )
    catalogs: str = Field(
        "default", description="catalogs whose tables the sweeper searches for jobs, separated by commas"
    )

    storage_requests: int = Field(
        32, ge=1, le=1024, description="requests to storage that a process makes at a time; more where one takes longer"
    )

    unit_mb: Megabytes = Field(
        256, ge=1, le=1_000_000, description="MB that one unit reads; larger partitions are split"
    )
    max_attempts: int = Field(3, ge=1, le=100, description="times that a unit is tried before it counts as failed")
    max_rounds: int = Field(3, ge=1, le=100, description="times that a job plans again after conflicts")
    commit_attempts: int = Field(20, ge=1, le=1000, description="attempts at a commit while other writers are faster")

    give_up_hours: int = Field(
        24, ge=1, le=8760, description="hours that a job retries while storage, catalog or Redis is unavailable"
    )

    cores: int = Field(0, ge=0, le=1024, description="Spark cores of a worker; 0: all of the machine")
    heap_mb: Megabytes = Field(
        0, ge=0, le=1_000_000, description="Spark's heap in MB, 512 at least; 0: a third of the memory, 4096 at most"
    )
    memory_mb: Megabytes = Field(
        0, ge=0, description="memory that a worker may use in MB, 512 at least; 0: all of the machine or its cgroup"
    )
    scratch_dir: str = Field(
        "", description="local disk where workers spill and sort; empty: the system's temporary directory"
    )
    state_dir: str = Field("", description="folder for the state of Flower and of beat; empty: ~/.local/state/icefleet")

    unit_seconds: Seconds = Field(
        3600, description="soft time limit of one unit in seconds; the hard one is a minute later"
    )
    shutdown_seconds: Seconds = Field(300, description="seconds that a stopping worker may take to finish its units")
    sweep_seconds: Seconds = Field(60, description="seconds between two searches for jobs that lost a message")
    lease_seconds: int = Field(
        45, ge=3, description="seconds without a heartbeat after which other workers take a worker's units"
    )
    recycle_units: int = Field(10_000, ge=1, description="units after which a worker child is replaced by a fresh one")
    report_days: int = Field(7, ge=1, le=365, description="days for which reports of ended jobs are kept in Redis")

    @field_validator("catalogs")
    @classmethod
    def _some_catalog(cls, value: str) -> str:
        if not any(name.strip() for name in value.split(",")):
            raise ValueError("names no catalog: give at least one, such as default")
        return value

    @field_validator("broker_url", "board_url")
    @classmethod
    def _address(cls, value: str, info: ValidationInfo) -> str:
        return _check_address(value.strip(), redis_only=info.field_name == "board_url")

    @field_validator("heap_mb", "memory_mb")
    @classmethod
    def _enough(cls, value: int, info: ValidationInfo) -> int:
        if 0 < value < MIN_HEAP_MB:
            raise ValueError(f"is less than Spark needs: {MIN_HEAP_MB} at least, or 0 to choose by the machine")
        if 0 < value < (heap := info.data.get("heap_mb", 0)):  # the heap is checked before the memory
            raise ValueError(f"does not hold the heap of {PREFIX}HEAP_MB={heap}: leave both at 0, or give it more")
        return value

    if not TYPE_CHECKING:  # type checkers take the arguments from the fields

        def __init__(self, **given: Any) -> None:
            """Take the settings that are given, and the others from the environment, then from a file ``.env``.

            Raises:
                Refused: A setting is unknown, or a value is not allowed; the sentence names it.
            """
            names = type(self).model_fields
            for name in given:
                if name not in names and not name.startswith("_"):  # BaseSettings takes _env_file and others
                    hint = suggest(name.lower().removeprefix(PREFIX.lower()), names)
                    raise Refused(Reason.CONFIGURATION, f"There is no setting {name!r}{hint}")
            try:
                super().__init__(**given)
            except ValidationError as error:
                raise self._refusal(error, given) from error
            register_address(self.broker_url)
            register_address(self.board_url)

    @classmethod
    def load(cls) -> Settings:
        """Return the settings of this process.

        Raises:
            Refused: A value is not allowed; the sentence names the variable.
        """
        return cls()

    @classmethod
    def _refusal(cls, error: ValidationError, given: Mapping[str, Any]) -> Refused:
        first = error.errors()[0]
        name, value = str(first["loc"][0]), first["input"]
        field, shown = cls.model_fields[name], repr(value)
        if name.endswith("_url"):
            register_address(str(value))  # or its password would be shown
        if first["type"] == "value_error":
            problem = first["msg"].removeprefix("Value error, ")
        else:
            problem = f"must be {_allowed(name, field)}; unset it for the default, {field.default!r}"
            shown = shown[:_SHOWN]
        setting = name if name in given else PREFIX + name.upper()
        return Refused(Reason.CONFIGURATION, f"{setting}={shown}: {problem} ({field.description}).")

    @classmethod
    def unknown_variables(cls) -> list[tuple[str, str]]:
        """Return variables with the prefix that are no setting, each with the nearest setting or an empty text."""
        known = [PREFIX + name.upper() for name in cls.model_fields]
        given = {name.upper() for name in (*os.environ, *DotEnvSettingsSource(cls).env_vars)}
        unknown = sorted(name for name in given - {*known, *_NO_SETTINGS} if name.startswith(PREFIX))
        return [(name, next(iter(get_close_matches(name, known, n=1, cutoff=0.7)), "")) for name in unknown]

    @property
    def local(self) -> bool:
        """Whether jobs run in the calling process because there is no broker."""
        return not self.broker_url

    @property
    def redis_url(self) -> str:
        """The address of the Redis for reports, locks and the list of jobs; empty if there is none."""
        return self.board_url or (self.broker_url if self.broker_url.partition("://")[0] in _REDIS else "")

    @property
    def catalog_names(self) -> tuple[str, ...]:
        """The catalogs that the sweeper visits."""
        return tuple(name.strip() for name in self.catalogs.split(",") if name.strip())

    @property
    def state_folder(self) -> Path:
        """The folder for the state of Flower and of beat."""
        home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        return Path(self.state_dir) if self.state_dir else Path(home) / "icefleet"

    @property
    def hard_limit(self) -> int:
        """Seconds after which a unit's process is killed; a message is redelivered only later than that."""
        return self.unit_seconds + 60

    @property
    def visibility_timeout(self) -> int:
        """Seconds after which Redis gives an unacknowledged message to another worker (counted once, from delivery)."""
        return self.hard_limit + self.shutdown_seconds + 600

    def describe(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield each setting as (variable, value, source, description)."""
        for name, field in type(self).model_fields.items():
            source = "set" if name in self.model_fields_set else "default"
            yield PREFIX + name.upper(), str(getattr(self, name)), source, field.description or ""


def _allowed(name: str, field: FieldInfo) -> str:
    """Return what a setting may be, such as ``a whole number of seconds, 1 or more``."""
    if field.annotation is str:
        return "text"
    (least,), most = ([getattr(m, bound) for m in field.metadata if hasattr(m, bound)] for bound in ("ge", "le"))
    span = f"{least} to {most[0]}" if most else f"{least} or more"
    unit = name.rpartition("_")[2]
    if unit == "mb":
        return f"whole MB ({span}), such as 256, or a size with its unit, such as 512MB or 4GB"
    return f"a whole number{f' of {unit}' if unit in ('seconds', 'hours', 'days') else ''}, {span}"
