"""Access to the object stores of one table, with its credentials: opened when needed, renewed when they expire."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from obstore.store import ObjectStore
from pyiceberg.io import FileIO

from producer.storage.requests import COUNTS, request, request_once
from producer.storage.stores import ObjectPath, open_store

T = TypeVar("T")

#: Properties that say when credentials expire, in milliseconds since 1970.
_EXPIRES: Final = ("s3.session-token-expires-at-ms", "gcs.oauth2.token-expires-at", "adls.sas-token-expires-at-ms")
#: Credentials are renewed so many seconds before they expire.
_EARLY: Final = 60.0
#: Seconds between two renewals at least: a store that denies access for another reason is not asked again and again.
_PAUSE: Final = 10.0


class ObjectStoreAccess:
    """Access with the properties of a table's FileIO.

    Args:
        properties: As PyIceberg's catalog gave them; they may hold credentials that expire.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        #: Loads a FileIO with new credentials; None if there are no others.
        self.reload: Callable[[], FileIO] | None = None
        self._renewed = time.monotonic()
        self._start()

    def __getstate__(self) -> dict[str, Any]:
        return {"_properties": self._properties, "reload": self.reload, "_sharing": COUNTS.sharing()}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self._properties, self.reload = state["_properties"], state["reload"]
        COUNTS.share(state["_sharing"])
        self._renewed = 0.0
        self._start()

    def covers(self, location: str) -> bool:
        """Return whether a file lies on an object store that can be accessed here."""
        path = ObjectPath.parse(location)
        return path is not None and self._store(path) is not None

    def store(self, location: str) -> ObjectStore:
        """Return the store of a file."""
        path = ObjectPath.parse(location)
        assert path is not None
        store = self._store(path)
        assert store is not None
        return store

    def call(self, kind: str, location: str, what: Callable[[ObjectStore, str], T], *, again: bool = True) -> T:
        """Return the result of a request for a file, given its store and key; errors are those of ``requests.request``.

        Args:
            again: Whether the request can be repeated as a whole while the store is busy or away. Of one that cannot,
                such as an upload whose pieces come once, obstore repeats the parts.
        """
        path = ObjectPath.parse(location)
        assert path is not None
        if self._expires_soon():
            self._renew()

        def ask() -> T:
            assert path is not None
            store = self._store(path, retries=not again)
            assert store is not None
            return what(store, path.key)

        make = partial(request, given_up=self.given_up) if again else request_once
        try:
            return make(kind, location, ask)
        except PermissionError:
            if not again or not self._renew():
                raise
            return make(kind, location, ask)

    def _start(self) -> None:
        self._lock = threading.Lock()
        #: Set when nobody wants the answers to requests any more: none is repeated.
        self.given_up = threading.Event()
        self._stores: dict[tuple[str, str, bool], ObjectStore | None] = {}

    def _store(self, path: ObjectPath, *, retries: bool = False) -> ObjectStore | None:
        place = path.scheme, path.authority, retries
        with self._lock:
            if place not in self._stores:
                self._stores[place] = open_store(path, self._properties, retries=retries)
            return self._stores[place]

    def _expires_soon(self) -> bool:
        times = [text for name in _EXPIRES if (text := self._properties.get(name)) is not None and text.isdecimal()]
        return bool(times) and min(map(int, times)) / 1000 < time.time() + _EARLY

    def _renew(self) -> bool:
        """Load new credentials; return whether others are there than a moment ago."""
        if self.reload is None:
            return False
        with self._lock:
            if self._renewed and time.monotonic() < self._renewed + _PAUSE:
                return False
            self._properties, self._renewed = self.reload().properties, time.monotonic()
            self._stores.clear()
        return True
