"""Settings: each value in its range, or refused by the variable's name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from producer.common.errors import Reason, Refused
from producer.common.redaction import redact
from producer.common.settings import MIN_HEAP_MB, PREFIX, Settings
from workers.runtime.machine import Budget, Machine

WRONG = {
    "UNIT_MB": ["0", "-1", "1000001", "many", "1.5", ""],
    "MAX_ATTEMPTS": ["0", "101"],
    "MAX_ROUNDS": ["0", "101"],
    "GIVE_UP_HOURS": ["0", "8761"],
    "COMMIT_ATTEMPTS": ["0", "1001"],
    "CORES": ["-1", "1025"],
    "HEAP_MB": ["-1", "1", "511", "1000001"],
    "MEMORY_MB": ["-1", "1", "511"],
    "UNIT_SECONDS": ["0", "-5", "soon", "60s", "1.5", ""],
    "SHUTDOWN_SECONDS": ["0"],
    "SWEEP_SECONDS": ["0"],
    "LEASE_SECONDS": ["0", "2", "2 minutes"],
    "RECYCLE_UNITS": ["0"],
    "REPORT_DAYS": ["0", "366"],
    "STORAGE_REQUESTS": ["0", "1025"],
    "CATALOGS": ["", " , "],
}
RIGHT = {
    "UNIT_MB": ["1", "1000000"],
    "MAX_ATTEMPTS": ["1", "100"],
    "MAX_ROUNDS": ["1", "100"],
    "GIVE_UP_HOURS": ["1", "8760"],
    "COMMIT_ATTEMPTS": ["1", "1000"],
    "CORES": ["0", "1024"],
    "HEAP_MB": ["0", "512"],
    "MEMORY_MB": ["0", "512"],
    "UNIT_SECONDS": ["1"],
    "SHUTDOWN_SECONDS": ["1"],
    "LEASE_SECONDS": ["3"],
    "SWEEP_SECONDS": ["1"],
    "RECYCLE_UNITS": ["1"],
    "REPORT_DAYS": ["1", "365"],
    "STORAGE_REQUESTS": ["1", "1024"],
    "CATALOGS": ["a", "a, b"],
}


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable of whoever runs the tests, and no file ``.env`` of theirs."""
    for name in Settings.model_fields:
        monkeypatch.delenv(PREFIX + name.upper(), raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_value_out_of_range_is_refused_by_name(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX + name, value)
    with pytest.raises(Refused, match=rf"^ICEFLEET_{name}={value!r}: ") as refused:
        Settings.load()
    assert refused.value.reason == Reason.CONFIGURATION
    assert refused.value.exit_status == 2
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("value", ["soon", "", "-7", "1.5", "9" * 5000])
@pytest.mark.parametrize("name", [name for name in WRONG if name != "CATALOGS"])
def test_a_refusal_says_what_is_allowed(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    field = Settings.model_fields[name.lower()]
    monkeypatch.setenv(PREFIX + name, value)
    if value.isdigit() and not any(hasattr(limit, "le") for limit in field.metadata):
        return  # no upper limit
    with pytest.raises(Refused) as refused:
        Settings.load()
    sentence = str(refused.value)
    assert re.search(r": must be (a whole number( of (seconds|hours|days))?|whole MB)\b", sentence)
    assert re.search(r"\b\d+ (or more|to \d+)\b", sentence), "what is allowed"
    assert f"; unset it for the default, {field.default} ({field.description})." in sentence
    assert "Input should" not in sentence
    assert len(sentence) < 500


def test_a_value_of_a_program_is_not_shown_in_its_error() -> None:
    with pytest.raises(Refused, match="percent-encoded") as refused:
        Settings(broker_url="redis://:se#cret-horse@localhost:6379/0")
    assert "cret-horse" not in f"{refused.value} {refused.value.__cause__}"


def test_a_password_of_a_program_is_masked_from_then_on() -> None:
    Settings(broker_url="redis://:correct-horse@localhost:6379/0")
    assert redact("correct-horse") == "***"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"broker_url": "localhost:6379"}, "broker_url='localhost:6379': has no scheme: write redis://localhost:6379"),
        ({"board_url": "amqp://host"}, "board_url='amqp://host': is not the address of a Redis: write one such as "),
        ({"broker_url": None}, "broker_url=None: must be text; unset it for the default, '' (Celery broker"),
        ({"unit_mb": 0}, "unit_mb=0: must be whole MB (1 to 1000000), such as 256"),
        ({"brokerurl": "redis://host/0"}, "There is no setting 'brokerurl': did you mean 'broker_url'?"),
        ({"ICEFLEET_UNIT_MB": 7}, "There is no setting 'ICEFLEET_UNIT_MB': did you mean 'unit_mb'?"),
        ({"xyzzy": "red"}, "There is no setting 'xyzzy'; there are broker_url, board_url, catalogs, "),
    ],
    ids=str,
)
def test_what_a_program_gives_is_refused_by_name(given: dict[str, Any], says: str) -> None:
    with pytest.raises(Refused, match=f"^{re.escape(says)}") as refused:
        Settings(**given)
    assert refused.value.reason == Reason.CONFIGURATION


def test_a_variable_is_named_where_a_program_gives_other_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICEFLEET_CORES", "many")
    with pytest.raises(Refused, match=r"^ICEFLEET_CORES='many': "):
        Settings(broker_url="redis://localhost:6379/0")


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in RIGHT.items() for value in values])
def test_the_ends_of_a_range_belong_to_it(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX + name, value)
    assert str(getattr(Settings.load(), name.lower())) == value


def test_every_number_is_tried() -> None:
    numbers = {name.upper() for name, field in Settings.model_fields.items() if field.annotation is int}
    assert numbers <= WRONG.keys()
    assert RIGHT.keys() == WRONG.keys()


def test_defaults_are_in_range() -> None:
    settings = Settings.load()
    assert Settings(**settings.model_dump()) == settings
    assert settings.local
    assert settings.redis_url == ""
    assert settings.catalog_names == ("default",)


def test_the_environment_comes_before_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("ICEFLEET_UNIT_MB=7\nICEFLEET_CORES=3\nPYICEBERG_CATALOG__DEFAULT__TYPE=sql\n")
    monkeypatch.setenv("ICEFLEET_CORES", "2")
    settings = Settings.load()
    assert (settings.unit_mb, settings.cores) == (7, 2)


def test_a_wrong_value_in_the_file_is_refused_too(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("ICEFLEET_UNIT_MB=none\n")
    with pytest.raises(Refused, match="ICEFLEET_UNIT_MB='none'"):
        Settings.load()


@pytest.mark.parametrize(
    ("broker", "board", "expected"),
    [
        ("", "", ""),
        ("redis://host/0", "", "redis://host/0"),
        ("rediss://host/0", "", "rediss://host/0"),
        ("amqp://host", "", ""),
        ("amqp://host", "redis://other/1", "redis://other/1"),
        ("redis://host/0", "redis://other/1", "redis://other/1"),
    ],
)
def test_where_the_board_is(broker: str, board: str, expected: str) -> None:
    assert Settings(broker_url=broker, board_url=board).redis_url == expected


def test_a_message_is_given_back_only_after_its_unit_was_killed() -> None:
    settings = Settings(unit_seconds=10, shutdown_seconds=20)
    assert settings.unit_seconds < settings.hard_limit < settings.visibility_timeout
    assert settings.visibility_timeout > settings.hard_limit + settings.shutdown_seconds


def test_catalogs_are_separated_by_commas() -> None:
    assert Settings(catalogs=" a ,b,, c").catalog_names == ("a", "b", "c")


def test_every_setting_is_described_with_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICEFLEET_UNIT_MB", "7")
    rows = {name: (value, source, text) for name, value, source, text in Settings.load().describe()}
    assert rows.keys() == {PREFIX + name.upper() for name in Settings.model_fields}
    assert rows["ICEFLEET_UNIT_MB"][:2] == ("7", "set")
    assert rows["ICEFLEET_CORES"][:2] == ("0", "default")
    assert all(text for _, _, text in rows.values())


@pytest.mark.parametrize(
    ("text", "megabytes"), [("512", 512), ("512MB", 512), ("512 MiB", 512), ("4GB", 4096), ("1.5g", 1536), ("0GB", 0)]
)
def test_megabytes_take_a_unit(text: str, megabytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICEFLEET_HEAP_MB", text)
    assert Settings.load().heap_mb == megabytes


@pytest.mark.parametrize("text", ["many", "1.5", "100KB", "4 GBit"])
def test_the_unit_is_said_in_a_refusal(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICEFLEET_UNIT_MB", text)
    with pytest.raises(Refused, match="such as 256, or a size with its unit, such as 512MB or 4GB"):
        Settings.load()


def test_unknown_variables_come_with_the_nearest_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ICEFLEET_BROKERURL", "ICEFLEET_FIXTURES", "ICEFLEET_CORES", "OTHER"):
        monkeypatch.setenv(name, "x")
    assert ("ICEFLEET_BROKERURL", "ICEFLEET_BROKER_URL") in Settings.unknown_variables()
    assert not {"ICEFLEET_FIXTURES", "ICEFLEET_CORES", "OTHER"} & {name for name, _ in Settings.unknown_variables()}


def test_a_heap_that_does_not_fit_is_refused_with_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICEFLEET_HEAP_MB", "2000")
    monkeypatch.setenv("ICEFLEET_MEMORY_MB", "1000")
    with pytest.raises(Refused, match=r"^ICEFLEET_MEMORY_MB='1000': does not hold the heap of ICEFLEET_HEAP_MB=2000:"):
        Settings.load()


@pytest.mark.parametrize("name", ["heap_mb", "memory_mb"])
def test_the_least_that_is_allowed_is_enough_for_a_worker(name: str) -> None:
    """A worker that refused it would do so at each unit."""
    machine = Machine(4, 8 << 30)
    assert Budget.of(machine, **{name: MIN_HEAP_MB}).heap_bytes == MIN_HEAP_MB << 20
    with pytest.raises(ValueError, match="MB"):
        Budget.of(machine, **{name: MIN_HEAP_MB - 1})


def test_space_around_an_address_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that a secret is read from ends with a new line."""
    monkeypatch.setenv("ICEFLEET_BROKER_URL", " redis://localhost:6379/0")
    settings = Settings(_env_file=None, board_url="redis://board:6379/1\n")
    assert (settings.broker_url, settings.board_url) == ("redis://localhost:6379/0", "redis://board:6379/1")
    assert Settings(_env_file=None, broker_url=" ").local
