"""The peers' side of the judge's protocol: a line of JSON in, a line of JSON out. Standard library only."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO, TypeAlias

#: What is done for one line, and the facts that are answered.
Command: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Lost(Exception):
    """The session is gone: what it was asked for has failed, and nothing more can be asked."""


class Idle(Exception):
    """There was nothing to do. An error where work was asked for once, and none where it is asked for again."""


def claim_stdout() -> TextIO:
    """Standard output for answers alone: what else is printed, by this process or one it starts, goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def serve(answers: TextIO, commands: Mapping[str, Command], versions: Mapping[str, str]) -> None:
    """Say that it is ready, then answer until there are no more lines, or the session is lost.

    What is asked with ``"again": {"seconds": 120, "every": 10}`` is done again and again for so long, and begun as
    often at most; the answer is how each time went.
    """
    _say(answers, {"ready": {"versions": versions}})
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            command = commands[asked["do"]]
            done = _again(command, asked, **asked["again"]) if "again" in asked else command(asked)
            _say(answers, {"done": dict(done)})
        except Lost as error:
            _say(answers, {"error": str(error)})
            return
        except Exception as error:
            _say(answers, {"error": _sentence(error)})


def _again(command: Command, asked: Mapping[str, Any], seconds: float, every: float) -> dict[str, Any]:
    """Do one thing until the time is up: how long each time took, and how it ended."""
    began = time.perf_counter()
    jobs: list[dict[str, Any]] = []
    while (started := time.perf_counter()) < began + seconds:
        job: dict[str, Any] = {"end": "committed"}
        try:
            command(asked)
        except Lost:
            raise
        except Idle:
            job = {"end": "idle"}
        except Exception as error:
            job = {"end": "failed", "error": _sentence(error)}
        jobs.append({**job, "seconds": time.perf_counter() - started})
        time.sleep(max(0.0, started + every - time.perf_counter()))
    return {"jobs": jobs}


def _sentence(error: Exception) -> str:
    first, _, _ = f"{type(error).__name__}: {error}".partition("\n")
    return first[:1000]


def _say(answers: TextIO, what: Mapping[str, Any]) -> None:
    answers.write(json.dumps(what, default=str) + "\n")
    answers.flush()
