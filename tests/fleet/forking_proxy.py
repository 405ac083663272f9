"""A TCP proxy with a process for each connection, so that one can be stopped and the next one lives.

Usage: ``python -m tests.fleet.forking_proxy PORT TARGET_PORT``.
"""

from __future__ import annotations

import select
import socket
import socketserver
import sys


class Pump(socketserver.BaseRequestHandler):
    """Passes bytes both ways until one side closes."""

    def handle(self) -> None:
        """Serve one connection."""
        with socket.create_connection(("127.0.0.1", int(sys.argv[2]))) as target:
            other = {self.request: target, target: self.request}
            while True:
                for source in select.select(list(other), [], [])[0]:
                    if not (data := source.recv(65536)):
                        return
                    other[source].sendall(data)


class Proxy(socketserver.ForkingTCPServer):
    """Accepts connections."""

    max_children = 200
    allow_reuse_address = True


if __name__ == "__main__":
    with Proxy(("127.0.0.1", int(sys.argv[1])), Pump) as proxy:
        proxy.serve_forever()
