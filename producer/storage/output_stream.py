"""Writes one object: in one request if it is small, else in parts while more of it comes."""

from __future__ import annotations

import io
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from queue import Empty, Full, Queue
from types import TracebackType
from typing import Final, Self

#: An object of so many bytes is written in one request; the parts of a larger one have as many.
PART_BYTES: Final = 8 << 20
#: Pieces that wait for the upload; it holds some parts more.
_PIECES: Final = 2
#: Bytes of small objects that wait to be written.
_BEHIND_BYTES: Final = 32 << 20
_POLL_SECONDS: Final = 0.1


class ObjectOutputStream:
    """The bytes of one object, which exists once the stream is closed: nobody sees a part of it.

    Args:
        put: Writes a small object at once.
        upload: Writes an object of any size in parts, as its pieces come. If these raise an error, it leaves nothing.
    """

    def __init__(self, put: Callable[[bytes], None], upload: Callable[[Iterator[bytes]], object]) -> None:
        self._put = put
        self._start_upload = upload
        self._buffer = io.BytesIO()
        self._upload: _Upload | None = None
        self._position = 0
        self.closed = False

    def write(self, b: bytes) -> int:
        """Add bytes; a buffer of any kind."""
        count = self._buffer.write(b)
        self._position += count
        if self._buffer.tell() >= PART_BYTES:
            self._upload = self._upload or _Upload(self._start_upload)
            self._upload.add(self._take())
        return count

    def tell(self) -> int:
        """Return how many bytes were added."""
        return self._position

    def flush(self) -> None:
        """Do nothing: an object is written whole."""

    def close(self) -> None:
        """Complete the object.

        Raises:
            FileExistsError: There is one, and it is not to be overwritten.
        """
        if self.closed:
            return
        self.closed = True
        if self._upload is None:
            self._put(self._take())
        else:
            self._upload.add(self._take())
            self._upload.complete()

    def discard(self) -> None:
        """Write nothing, and leave no parts."""
        self.closed = True
        self._take()
        if self._upload is not None:
            self._upload.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close() if kind is None else self.discard()

    def _take(self) -> bytes:
        taken, self._buffer = self._buffer.getvalue(), io.BytesIO()
        return taken


class WritesBehind:
    """Small objects that are written by other threads; what they hold in memory is bounded."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._writes: deque[tuple[int, Future[None]]] = deque()
        self._bytes = 0

    def add(self, put: Callable[[bytes], None], contents: bytes) -> None:
        """Begin to write an object; wait for earlier ones while they hold too much.

        Raises:
            OSError: An earlier object could not be written.
        """
        while self._bytes > _BEHIND_BYTES:
            self._wait()
        self._writes.append((len(contents), self._pool.submit(put, contents)))
        self._bytes += len(contents)

    def finish(self) -> None:
        """Wait until all objects are written.

        Raises:
            OSError: An object could not be written; the others are written or have failed as well.
        """
        wait([write for _, write in self._writes])
        while self._writes:
            self._wait()

    def _wait(self) -> None:
        size, write = self._writes.popleft()
        self._bytes -= size
        write.result()


class _Upload:
    """A thread that uploads pieces."""

    def __init__(self, upload: Callable[[Iterator[bytes]], object]) -> None:
        self._queue: Queue[bytes | None] = Queue(_PIECES)
        self._aborted = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(upload,), name="upload", daemon=True)
        self._thread.start()

    def add(self, piece: bytes | None) -> None:
        while self._thread.is_alive():
            try:
                self._queue.put(piece, timeout=_POLL_SECONDS)
            except Full:
                continue
            return
        raise self._error or RuntimeError("the upload has ended")

    def complete(self) -> None:
        self.add(None)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def abort(self) -> None:
        self._aborted = True
        self._thread.join()

    def _run(self, upload: Callable[[Iterator[bytes]], object]) -> None:
        try:
            upload(self._pieces())
        except BaseException as error:
            self._error = error

    def _pieces(self) -> Iterator[bytes]:
        while True:
            try:
                piece = self._queue.get(timeout=_POLL_SECONDS)
            except Empty:
                if self._aborted:
                    raise InterruptedError("the upload is discarded") from None
                continue
            if self._aborted:
                raise InterruptedError("the upload is discarded")
            if piece is None:
                return
            if piece:
                yield piece
