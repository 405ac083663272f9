"""Catalogs that cannot be used: one sentence that says why, without a secret, and exit status 2."""

from __future__ import annotations

import re
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyiceberg.catalog import load_catalog

from producer.cli.main import main

SECRET = "not-to-be-seen"


class _Page(BaseHTTPRequestHandler):
    """What is no catalog."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.end_headers()
        self.wfile.write(b"<html>Not here</html>")

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def page() -> Iterator[ThreadingHTTPServer]:
    """A server of pages."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def said(monkeypatch: pytest.MonkeyPatch, **properties: str) -> str:
    """Return what a command says that needs a catalog with these properties."""
    monkeypatch.setattr("producer.iceberg.catalog.load_catalog", lambda name: load_catalog(name, **properties))
    monkeypatch.setenv("COLUMNS", "400")
    done = CliRunner().invoke(main, ["plan", "db.t", "--catalog", "far"])
    assert done.exit_code == 2, done.output
    assert SECRET not in done.output
    assert len(done.output.splitlines()) == 1, done.output
    return done.output


@pytest.mark.parametrize(
    "properties",
    [
        {"type": "rest", "uri": "http://127.0.0.1:1", "credential": f"client:{SECRET}"},
        {"type": "rest", "uri": "http://no-such-host.invalid/", "token": SECRET},
        {"type": "sql", "uri": f"postgresql+psycopg2://user:{SECRET}@127.0.0.1:1/db"},
        {"type": "hive", "uri": "thrift://127.0.0.1:1"},
    ],
    ids=lambda properties: properties["type"],
)
def test_a_catalog_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]) -> None:
    if properties["type"] == "hive":
        pytest.importorskip("thrift")
    assert re.match(
        r"Refused: Catalog 'far' does not answer: .*(refused|resolve|connect)", said(monkeypatch, **properties)
    )


def test_an_address_that_is_no_catalogs(monkeypatch: pytest.MonkeyPatch, page: ThreadingHTTPServer) -> None:
    answer = said(monkeypatch, type="rest", uri=f"http://127.0.0.1:{page.server_port}", token=SECRET)
    assert answer.startswith("Refused: Catalog 'far' refuses its configuration, such as uri or warehouse: ")


def test_an_address_without_a_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = said(monkeypatch, type="rest", uri="catalog.example:8181", token=SECRET)
    assert answer.startswith("Refused: There is no usable catalog 'far': configure it in ")


def test_a_certificate_that_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch, page: ThreadingHTTPServer, tmp_path: Path
) -> None:
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("no openssl to make a certificate with")
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    page.socket = context.wrap_socket(page.socket, server_side=True)
    answer = said(monkeypatch, type="rest", uri=f"https://localhost:{page.server_port}", token=SECRET)
    assert "has a certificate that is not trusted here: name its authority's in REQUESTS_CA_BUNDLE." in answer
