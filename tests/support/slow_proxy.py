"""A proxy before an object store or a catalog that makes requests slow, counts them, and lets some of them fail.

Run as a process of its own: ``python -m tests.support.slow_proxy --backend 127.0.0.1:9000 --latency 0.05 --rate 50e6``.
It prints its address. ``GET /-/counts`` returns what came since the last time; ``PUT /-/faults`` sets what fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

_PIECE: Final = 256 << 10
#: Seconds: what is due earlier is passed on at once.
_SHORTEST_SLEEP: Final = 0.001
#: Seconds by which a request is late that is to be slow: some more than clients wait.
_SLOW: Final = (0.2, 7.0)
_CHUNKED: Final = re.compile(rb"(?i)\r\ntransfer-encoding: *chunked")
_BUSY: Final = (
    b"HTTP/1.1 503 Slow Down\r\ncontent-type: application/xml\r\nconnection: close\r\ncontent-length: 63\r\n\r\n"
    b"<Error><Code>SlowDown</Code><Message>Slow down</Message></Error>"[:63]
)
_STATUS: Final = (
    b"HTTP/1.1 %b Fault\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}"
)


@dataclass
class Proxy:
    """Passes requests on, one connection to the store for each that comes in.

    Faults are shares of requests between 0 and 1: ``busy`` (503), ``reset`` (closed before an answer), ``slow`` (some
    seconds late), ``cut`` (closed in the middle of an answer), ``lost`` (passed on, and closed before its answer),
    ``twice`` (passed on twice, as by a gateway that repeats requests), ``refuse 500`` (answered with that status),
    ``answer 500`` (passed on, and answered with it). They meet requests in whose first line and headers ``only`` is
    found, ``times`` of them at most.
    """

    host: str
    port: int
    latency: float
    rate: float
    counts: Counter[str] = field(default_factory=Counter)
    faults: dict[str, Any] = field(default_factory=dict)
    only: str = ""
    times: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        with suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            store_reader, store_writer = await asyncio.open_connection(self.host, self.port)
            try:
                while (head := await _head(reader)) is not None:
                    if not await self._pass_on(head, reader, writer, store_reader, store_writer):
                        break
            finally:
                store_writer.close()
        writer.close()

    async def _pass_on(
        self,
        head: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        store_reader: asyncio.StreamReader,
        store_writer: asyncio.StreamWriter,
    ) -> bool:
        method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ", 2)
        length = _length(head)
        if target.startswith("/-/"):
            await self._command(method, target, await reader.readexactly(length), writer)
            return True
        if re.search(rb"(?i)\r\nexpect: 100-continue", head):
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            head = re.sub(rb"(?i)\r\nexpect: 100-continue", b"", head)
        fault = self._draw(head.decode("latin-1"))
        self.counts[_kind(method, target, head)] += 1
        self.counts["bytes up"] += length
        if fault is not None and fault.startswith(("busy", "reset", "refuse")):
            self.counts[f"fault {fault}"] += 1
            await reader.readexactly(length)
            answers = {"busy": _BUSY, "reset": b""}
            writer.write(answers[fault] if fault in answers else _STATUS % fault[-3:].encode())
            await writer.drain()
            return False
        if fault == "twice":
            self.counts["fault twice"] += 1
            content = await reader.readexactly(length)
            store_writer.write(head + content)
            first = await _head(store_reader)
            assert first is not None
            if _CHUNKED.search(first):
                await self._copy_chunks(store_reader, None)
            else:
                await store_reader.readexactly(_body(method, first))
            reader = asyncio.StreamReader()
            reader.feed_data(content)
        store_writer.write(head)
        if _CHUNKED.search(head):
            await self._copy_chunks(reader, store_writer)
        else:
            await self._copy(reader, store_writer, length)
        await asyncio.sleep(self.latency)
        if fault == "slow":
            self.counts["fault slow"] += 1
            await asyncio.sleep(random.uniform(*_SLOW))
        answer = await _head(store_reader)
        if answer is None or fault == "lost":
            self.counts[f"fault {fault}"] += 1
            return False
        if fault is not None and fault.startswith("answer"):
            self.counts[f"fault {fault}"] += 1
            writer.write(_STATUS % fault[-3:].encode())
            await writer.drain()
            return False
        writer.write(answer)
        body = _body(method, answer)
        self.counts["bytes down"] += body
        if fault == "cut" and body > 1:
            self.counts["fault cut"] += 1
            await self._copy(store_reader, writer, body // 2)
            return False
        if _CHUNKED.search(answer):
            await self._copy_chunks(store_reader, writer)
        else:
            await self._copy(store_reader, writer, body)
        await writer.drain()
        return not re.search(rb"(?i)\r\nconnection: *close", answer + head)

    async def _copy_chunks(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter | None) -> None:
        write = sink.write if sink is not None else len
        while size := int((line := await source.readline()).partition(b";")[0], 16):
            write(line)
            await self._copy(source, sink, size + 2)
        while line not in (b"\r\n", b""):  # trailers
            write(line)
            line = await source.readline()
        write(line)

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter | None, count: int) -> None:
        due = time.monotonic()
        while count:
            piece = await source.read(min(count, _PIECE))
            if not piece:
                raise ConnectionResetError
            count -= len(piece)
            if sink is not None:
                sink.write(piece)
                await sink.drain()
            if self.rate:
                due += len(piece) / self.rate
                if (early := due - time.monotonic()) > _SHORTEST_SLEEP:
                    await asyncio.sleep(early)

    async def _command(self, method: str, target: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        if target == "/-/faults" and method == "PUT":
            self.faults = json.loads(body)
            self.only, self.times = self.faults.pop("only", ""), self.faults.pop("times", 1 << 30)
        answer = json.dumps(self.counts if target == "/-/counts" else self.faults).encode()
        if target == "/-/counts":
            self.counts = Counter()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(answer), answer))
        await writer.drain()

    def _draw(self, request: str) -> str | None:
        if not self.times or not re.search(self.only, request):
            return None
        drawn = random.random()
        for name, share in self.faults.items():
            if drawn < share:
                self.times -= 1
                return name
            drawn -= share
        return None


async def _head(reader: asyncio.StreamReader) -> bytes | None:
    """Return a request's or an answer's first line and headers; None at the end of the connection."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None


def _length(head: bytes) -> int:
    found = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return int(found[1]) if found else 0


def _body(method: str, answer: bytes) -> int:
    """Return the bytes that follow an answer's headers."""
    return 0 if method == "HEAD" or answer[9:12] in (b"204", b"304") else _length(answer)


def _kind(method: str, target: str, head: bytes) -> str:
    query = target.partition("?")[2]
    if "list-type" in query or (method == "GET" and ("prefix=" in query or "delimiter=" in query)):
        return "LIST"
    if method == "POST":
        return "DELETE many" if re.search(r"(^|&)delete(=|&|$)", query) else "multipart"
    if "uploadId=" in query or "uploads" in query:
        return "multipart"
    return f"{method} range" if method == "GET" and re.search(rb"(?i)\r\nrange:", head) else method


async def _main(arguments: Any) -> None:
    host, _, port = arguments.backend.rpartition(":")
    proxy = Proxy(host, int(port), arguments.latency, arguments.rate)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", arguments.port, limit=1 << 20)
    address = server.sockets[0].getsockname()
    print(f"http://{address[0]}:{address[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before the first byte of an answer")
    parser.add_argument("--rate", type=float, default=0.0, help="bytes a second of one connection; 0: no limit")
    asyncio.run(_main(parser.parse_args()))
