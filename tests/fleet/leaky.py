"""A storage and a catalog that put all they know into the texts of their errors, as real ones do now and then."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

#: What is handed out with a table, and no configuration knows.
VENDED = "planted-vended"
#: What the storage makes of it all, and nobody has told beforehand.
SIGNED = "https://store.example/lake?X-Amz-Expires=60&X-Amz-Signature=planted-signature"
#: What the catalog says of what it was asked with.
NO_CONNECTION = "no connection with"


class LeakyIO(PyArrowFileIO):
    """Lets nobody read rows."""

    def __init__(self, properties: Any = None) -> None:
        super().__init__({**(properties or {}), "s3.session-token": VENDED})

    def new_input(self, location: str) -> PyArrowFile:
        """Whatever is asked for, unless it is Parquet."""
        if location.endswith(".parquet"):
            raise PermissionError(f"403 from {SIGNED}, asked with {dict(self.properties)}")
        return super().new_input(location)


class _Away(BaseHTTPRequestHandler):
    """Answers with what it was asked."""

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        self._answer(f"{NO_CONNECTION} {asked} {dict(self.headers)} to postgresql://me:planted-url@db.example/lake")

    def do_GET(self) -> None:
        self._answer(f"{NO_CONNECTION} {dict(self.headers)} to postgresql://me:planted-url@db.example/lake")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _answer(self, text: str) -> None:
        body = json.dumps({"error": {"message": text, "type": "InternalServerError", "code": 500}}).encode()
        self.send_response(500)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def leaky_catalog() -> Iterator[str]:
    """A REST catalog whose database is away; its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Away) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
