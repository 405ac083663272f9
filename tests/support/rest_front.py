"""A server before a REST catalog that vends credentials, checks tokens and refuses what a catalog may refuse."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import requests

_TABLE: Final = re.compile(r"(GET|POST) .*/namespaces/[^/]+/tables(/[^/]+)?$")


@dataclass
class RestFront:
    """Passes requests on to the catalog at ``backend``; what else it does can be set at any time."""

    backend: str
    #: Added to each table that is answered with, such as ``config`` and ``storage-credentials``.
    vend: Callable[[], Mapping[str, Any]] = dict
    #: Requests (method and path) that are refused, and the status they are refused with.
    refused: dict[str, int] = field(default_factory=dict)
    #: The tokens that requests may come with; None if they need none.
    tokens: set[str] | None = None
    #: The token that a client gets for its credential.
    issued: Callable[[], str] = str
    #: Requests so far, by method and path.
    counts: Counter[str] = field(default_factory=Counter)
    uri: str = ""

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Any]:
        """Return the status and the JSON that a request is answered with."""
        line = f"{method} {path.partition('?')[0]}"
        self.counts[line] += 1
        if path.endswith("/oauth/tokens"):
            return 200, {"access_token": self.issued(), "token_type": "bearer", "expires_in": 3600}
        if self.tokens is not None and headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
            return 401, _error(401, "NotAuthorizedException", "The token has expired")
        if found := next((status for pattern, status in self.refused.items() if re.search(pattern, line)), None):
            return found, _error(found, "ForbiddenException", "Not allowed")
        passed = {name: value for name, value in headers.items() if name.lower() not in ("host", "content-length")}
        found_answer = requests.request(method, f"{self.backend}{path}", headers=passed, data=body, timeout=60)
        if not found_answer.content:
            return found_answer.status_code, None
        document = found_answer.json()
        if found_answer.ok and _TABLE.match(line) and "metadata" in document:
            document |= self.vend()
        return found_answer.status_code, document


@contextmanager
def running_front(backend: str, port: int = 0) -> Iterator[RestFront]:
    """Run a front of a catalog."""
    front = RestFront(backend)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, document = front.answer(self.command, self.path, dict(self.headers), body)
            content = b"" if document is None else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_POST = do_HEAD = do_DELETE = do_PUT = _answer  # noqa: N815

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        front.uri = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield front
        finally:
            server.shutdown()


def _error(code: int, kind: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "type": kind, "message": message}}
