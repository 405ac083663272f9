"""Secrets in texts: those that are known, those that look like one, and what must not be taken for one."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from producer.common import redaction as masking
from producer.common.errors import Corrupt, Reason, Refused
from producer.common.redaction import RedactedRecord, redact, register_address, register_secrets
from producer.model.job import Request, Status
from tasks.lifecycle.outcomes import report_of


@pytest.fixture(autouse=True)
def nothing_learned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test begins, and leaves this process, without secrets."""
    monkeypatch.setattr(masking, "_registered", set())
    masking._known_secrets.cache_clear()
    yield
    masking._known_secrets.cache_clear()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("redis://:hunter22@host:6379/0", "redis://***@host:6379/0"),
        ("postgresql+psycopg2://me:p%40ss@db/x is away", "postgresql+psycopg2://***@db/x is away"),
        ("GET https://b.s3/a?X-Amz-Date=1&X-Amz-Signature=abc&x=1", "GET https://b.s3/a?X-Amz-Date=1&X-Amz-Signature=***&x=1"),
        ("https://a.blob/c?sv=1&sig=a%2Fb", "https://a.blob/c?sv=1&sig=***"),
        ("{'s3.secret-access-key': 'abc', 's3.region': 'eu'}", "{'s3.secret-access-key': '***', 's3.region': 'eu'}"),
        ('{"adls.account-key": "abc=="}', '{"adls.account-key": "***"}'),
        ("client_secret=abc&scope=x", "client_secret=***&scope=x"),
        ("{'Authorization': 'Bearer abc.def'}", "{'Authorization': 'Bearer ***'}"),
        ("sent Bearer eyJhbGciOi.x", "sent Bearer ***"),
    ],
)  # fmt: skip
def test_what_looks_like_a_secret(text: str, expected: str) -> None:
    assert redact(text) == expected
    assert redact(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "abfss://container@account.dfs.core.windows.net/db/t/data/a.parquet is missing",
        "s3://lake/db/t/day=2024-05-01/a.parquet: its footer is no Parquet footer",
        "the token has expired",
        "Catalog 'default' denies access to 'db.t': credential not accepted.",
        "redis://host:6379/0",
        "file:///lake/mail@host:25/a",
    ],
)
def test_what_is_none(text: str) -> None:
    assert redact(text) == text


def test_values_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    register_secrets(
        {"credential": "client:opensesame", "s3.session-token": "sesame-42", "auth": {"basic": {"password": "deeper"}}}
    )
    register_secrets(
        {"token-refresh-enabled": "true-enough", "uri": "https://host/", "scope": "catalog", "token": "abc"}
    )
    register_address("redis://:p%40ssword@host/0")
    register_address("redis://:with/slash@host/0")
    assert redact("redis://:with/slash@host/0") == "redis://***@host/0"
    said = "client:opensesame, opensesame, sesame-42, deeper, p@ssword"
    assert redact(said) == "***, ***, ***, ***, ***"
    assert redact("true-enough https://host/ catalog abc") == "true-enough https://host/ catalog abc"


def test_values_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__S3__SECRET_ACCESS_KEY", "opensesame")
    masking._known_secrets.cache_clear()
    assert redact("it is opensesame") == "it is ***"


def test_errors_and_reports_are_redacted() -> None:
    register_secrets({"password": "opensesame"})
    assert str(Refused(Reason.NO_ANSWER, "no opensesame")) == str(Corrupt("no opensesame")) == "no ***"
    report = report_of(Request.new("db.t"), Status.FAILED, reason="no opensesame")
    assert report.reason == "no ***"


def test_logs_are_redacted_with_their_tracebacks() -> None:
    register_secrets({"password": "opensesame"})
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    try:
        raise ValueError("no opensesame") from KeyError("opensesame")
    except ValueError as error:
        found = (type(error), error, error.__traceback__)
    record = RedactedRecord("a", logging.INFO, __file__, 1, "%s it is", ("opensesame",), found)
    handler.emit(record)
    assert "opensesame" not in out.getvalue(), "nor in the lines of code that a traceback shows"
    assert "ValueError: no ***" in out.getvalue()
    assert out.getvalue().startswith("*** it is\n")
