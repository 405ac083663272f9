"""Access to the object stores of one table, with its credentials: opened when needed, renewed when they expire."""

from __future__ import annotations

import logging
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

log = logging.getLogger(__name__)

#: The property with the credentials that a catalog vends for several places: their properties by a prefix of locations.
STORAGE_CREDENTIALS: Final = "icefleet.storage-credentials"
#: Beginnings of properties that say when credentials expire, in milliseconds since 1970.
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

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = properties
        #: Loads a FileIO with new credentials; None if there are no others.
        self.reload: Callable[[], FileIO] | None = None
        self._renewed = 0.0
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
        return path is not None and self._store(path, location) is not None

    def store(self, location: str) -> ObjectStore:
        """Return the store of a file."""
        path = ObjectPath.parse(location)
        assert path is not None
        store = self._store(path, location)
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
        if self._expires_within(_EARLY):
            self._renew_early()
        used = self._properties

        def ask() -> T:
            assert path is not None
            store = self._store(path, location, retries=not again)
            assert store is not None
            return what(store, path.key)

        make = partial(request, given_up=self.given_up) if again else request_once
        try:
            return make(kind, location, ask)
        except PermissionError:
            if not again or not self._renew(used):
                raise
            return make(kind, location, ask)

    def _start(self) -> None:
        self._lock = threading.Lock()
        #: Set when nobody wants the answers to requests any more: none is repeated.
        self.given_up = threading.Event()
        self._stores: dict[tuple[str, str, str, bool], ObjectStore | None] = {}

    def _store(self, path: ObjectPath, location: str, *, retries: bool = False) -> ObjectStore | None:
        with self._lock:
            credentials: Mapping[str, Mapping[str, str]] = self._properties.get(STORAGE_CREDENTIALS, {})
            prefix = max(filter(location.startswith, credentials), key=len, default="")
            place = path.scheme, path.authority, prefix, retries
            if place not in self._stores:
                properties = {**self._properties, **credentials.get(prefix, {})}
                self._stores[place] = open_store(path, properties, retries=retries)
            return self._stores[place]

    def _expires_within(self, seconds: float) -> bool:
        every = (self._properties, *self._properties.get(STORAGE_CREDENTIALS, {}).values())
        found = (text for some in every for name, text in some.items() if name.startswith(_EXPIRES))
        times = [int(text) for text in found if str(text).isdecimal()]
        return bool(times) and min(times) / 1000 < time.time() + seconds

    def _renew_early(self) -> None:
        """Load new credentials; those that have not expired yet are used on if the catalog does not give any."""
        try:
            self._renew(self._properties)
        except Exception:  # each kind of catalog raises what its client raises
            if self._expires_within(0):
                raise
            log.info("credentials cannot be renewed yet", exc_info=True)

    def _renew(self, used: Mapping[str, Any]) -> bool:
        """Load new credentials, unless another thread has; return whether there are others than those used."""
        if self.reload is None:
            return False
        with self._lock:
            if self._properties is not used:
                return True
            if self._renewed and time.monotonic() < self._renewed + _PAUSE:
                return False
            self._renewed = time.monotonic()  # whether it succeeds or not
            self._properties = self.reload().properties
            self._stores.clear()
        return True
