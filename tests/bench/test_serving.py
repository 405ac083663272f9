"""The peers' side of the protocol: commands that work, fail, are idle, or lose their session."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import pytest

from bench.peers.serving import Idle, Lost, serve


def work(asked: Mapping[str, Any]) -> dict[str, Any]:
    raise {"fail": RuntimeError("two\nlines"), "idle": Idle("nothing"), "lost": Lost("it is gone")}[asked["how"]]


def answers(monkeypatch: pytest.MonkeyPatch, *asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(json.dumps(line) + "\n" for line in asked)))
    said = io.StringIO()
    serve(said, {"work": work, "add": lambda asked: {"sum": asked["a"] + asked["b"]}}, {"peer": "1.0"})
    ready, *rest = (json.loads(line) for line in said.getvalue().splitlines())
    assert ready == {"ready": {"versions": {"peer": "1.0"}}}
    return rest


def test_an_error_is_one_line_and_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    found = answers(monkeypatch, {"do": "work", "how": "fail"}, {"do": "add", "a": 1, "b": 2})
    assert found == [{"error": "RuntimeError: two"}, {"done": {"sum": 3}}]


def test_a_lost_session_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    found = answers(monkeypatch, {"do": "work", "how": "lost"}, {"do": "add", "a": 1, "b": 2})
    assert found == [{"error": "it is gone"}]


@pytest.mark.parametrize(
    ("asked", "end"),
    [
        ({"do": "add", "a": 1, "b": 2}, {"end": "committed"}),
        ({"do": "work", "how": "idle"}, {"end": "idle"}),
        ({"do": "work", "how": "fail"}, {"end": "failed", "error": "RuntimeError: two"}),
    ],
)
def test_again_and_again(monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], end: dict[str, str]) -> None:
    (found,) = answers(monkeypatch, {**asked, "again": {"seconds": 0.3, "every": 0.05}})
    jobs = found["done"]["jobs"]
    assert 2 <= len(jobs) <= 6
    assert all({**job, "seconds": 0} == {**end, "seconds": 0} for job in jobs)


def test_idle_is_an_error_when_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answers(monkeypatch, {"do": "work", "how": "idle"}) == [{"error": "Idle: nothing"}]
