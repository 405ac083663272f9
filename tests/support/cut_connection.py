"""A proxy before PostgreSQL that cuts the connection in the middle of a commit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass


@dataclass
class CuttingProxy:
    """Cuts connections at the COMMIT that follows an UPDATE, before or after the server has it."""

    server_port: int
    #: ``before`` the server has the commit, or ``after``, when its answer is there; empty for never.
    cut: str = ""
    #: Connections that were cut; each turns ``cut`` off.
    cuts: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self.server_port)
        answers = asyncio.create_task(_copy(from_server, writer))
        updated = False
        with suppress(ConnectionError):
            while message := await reader.read(1 << 16):
                updated |= b"UPDATE iceberg_tables" in message
                if updated and b"COMMIT" in message and self.cut:
                    when, self.cut, self.cuts = self.cut, "", self.cuts + 1
                    answers.cancel()
                    if when == "after":
                        to_server.write(message)
                        await from_server.read(1)
                    break
                to_server.write(message)
                await to_server.drain()
        to_server.close()
        writer.close()


@contextmanager
def cutting_proxy(port: int, server_port: int) -> Iterator[CuttingProxy]:
    """Run the proxy in a thread."""
    proxy, loop = CuttingProxy(server_port), asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(proxy.serve, "127.0.0.1", port))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, asyncio.CancelledError):
        while piece := await source.read(1 << 16):
            sink.write(piece)
            await sink.drain()
        sink.close()
