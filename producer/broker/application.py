"""The Celery application of Icefleet, which ignores Celery's own environment variables."""

from __future__ import annotations

from typing import Any

from celery import Celery
from celery.loaders.app import AppLoader


class Loader(AppLoader):
    """A loader that reads no configuration from the environment."""

    def read_configuration(self, env: str = "CELERY_CONFIG_MODULE") -> dict[str, Any]:
        """Return no configuration: the application is given all of it."""
        return {}


class Application(Celery):
    """A Celery application that always uses the given broker.

    Celery reads ``CELERY_BROKER_URL``, ``CELERY_CONFIG_MODULE`` and ``CELERY_LOADER`` first: if these are set for
    another application of the same process, messages would go to that application's broker.
    """

    def __init__(self, name: str, *, broker: str, **options: Any) -> None:
        super().__init__(name, broker=broker, loader=Loader, **options)
        self._address = broker

    def connection(self, hostname: str | None = None, *args: Any, **options: Any) -> Any:
        """Return a connection for consuming or publishing; Flower calls this."""
        return super().connection(hostname or self._address, *args, **options)

    def connection_for_read(self, url: str | None = None, **options: Any) -> Any:
        """Return a connection for consuming."""
        return super().connection_for_read(url or self._address, **options)

    def connection_for_write(self, url: str | None = None, **options: Any) -> Any:
        """Return a connection for publishing."""
        return super().connection_for_write(url or self._address, **options)
