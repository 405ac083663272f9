"""What fake-gcs-server lacks: the XML interface's PUT, with its condition that there is no such object yet.

Passes all other requests on: ``python -m tests.support.gcs_xml PROGRAM PORT`` runs the server at the next port.
"""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NoReturn
from urllib.parse import quote, unquote, urlsplit


def handler(backend: str) -> type[BaseHTTPRequestHandler]:
    """Return the handler of requests for the server at ``backend``, a host and a port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self._body()
            method, path = self.command, self.path
            replaced = ("host", "content-length", "transfer-encoding", "connection")
            headers = {name: value for name, value in self.headers.items() if name.lower() not in replaced}
            xml = method == "PUT" and not path.startswith(("/upload/", "/storage/", "/_internal/"))
            if xml:
                bucket, _, key = unquote(urlsplit(path).path)[1:].partition("/")
                path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(key, safe='')}"
                if (match := self.headers.get("x-goog-if-generation-match")) is not None:
                    path += f"&ifGenerationMatch={match}"
                method = "POST"
            connection = http.client.HTTPConnection(backend, timeout=60)
            connection.request(method, path, body, headers | {"Host": backend, "Content-Length": str(len(body))})
            found = connection.getresponse()
            content = found.read()
            self.send_response(found.status)
            for name, value in found.getheaders():
                if name.lower() not in ("content-length", "transfer-encoding", "connection", "etag"):
                    self.send_header(name, value)
            self.send_header("ETag", found.getheader("etag") or '"none"')
            length = found.getheader("content-length") if method == "HEAD" else None
            self.send_header("Content-Length", length or str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            connection.close()

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = answer  # noqa: N815

        def _body(self) -> bytes:
            if self.headers.get("transfer-encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("content-length", 0)))
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            while self.rfile.readline() not in (b"\r\n", b""):
                pass
            return b"".join(pieces)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    return Handler


def _main(program: str, port: int) -> None:
    # Addresses in answers are those of the front, which all requests come to with the server's own name.
    options = ["-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-log-level", "error"]
    hosts = ["-public-host", f"127.0.0.1:{port + 1}", "-external-url", f"http://127.0.0.1:{port}"]
    server = subprocess.Popen([program, *options, "-port", str(port + 1), *hosts])

    def stop(*_: object) -> NoReturn:
        server.kill()
        raise SystemExit

    signal.signal(signal.SIGTERM, stop)
    ThreadingHTTPServer(("127.0.0.1", port), handler(f"127.0.0.1:{port + 1}")).serve_forever()


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
