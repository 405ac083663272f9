"""The peers' side of the judge's protocol: a line of JSON in, a line of JSON out. Standard library only."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, TextIO, TypeAlias

#: What is done for one line, and the facts that are answered.
Command: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Lost(Exception):
    """The session is gone: what it was asked for has failed, and nothing more can be asked."""


def claim_stdout() -> TextIO:
    """Standard output for answers alone: what else is printed, by this process or one it starts, goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def serve(answers: TextIO, commands: Mapping[str, Command], versions: Mapping[str, str]) -> None:
    """Say that it is ready, then answer until there are no more lines, or the session is lost."""
    _say(answers, {"ready": {"versions": versions}})
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            _say(answers, {"done": dict(commands[asked["do"]](asked))})
        except Lost as error:
            _say(answers, {"error": str(error)})
            return
        except Exception as error:
            first, _, _ = f"{type(error).__name__}: {error}".partition("\n")
            _say(answers, {"error": first[:1000]})


def _say(answers: TextIO, what: Mapping[str, Any]) -> None:
    answers.write(json.dumps(what, default=str) + "\n")
    answers.flush()
