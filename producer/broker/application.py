"""A Celery application that is configured by Icefleet alone."""

from __future__ import annotations

from typing import Any

from celery import Celery
from celery.loaders.app import AppLoader


class Loader(AppLoader):
    """Loads no configuration that the environment names."""

    def read_configuration(self, env: str = "CELERY_CONFIG_MODULE") -> dict[str, Any]:
        """Nothing: what the application is configured with, it is given."""
        return {}


class Application(Celery):
    """A Celery application that listens at the address it is given.

    Celery itself asks the environment first (``CELERY_BROKER_URL``, ``CELERY_CONFIG_MODULE``, ``CELERY_LOADER``): where
    these are set for another application of the same process, messages would go to that one's broker.
    """

    def __init__(self, name: str, *, broker: str, **options: Any) -> None:
        super().__init__(name, broker=broker, loader=Loader, **options)
        self._address = broker

    def connection(self, hostname: str | None = None, *args: Any, **options: Any) -> Any:
        """A connection for either; Flower asks for it."""
        return super().connection(hostname or self._address, *args, **options)

    def connection_for_read(self, url: str | None = None, **options: Any) -> Any:
        """A connection to consume with."""
        return super().connection_for_read(url or self._address, **options)

    def connection_for_write(self, url: str | None = None, **options: Any) -> Any:
        """A connection to publish with."""
        return super().connection_for_write(url or self._address, **options)
