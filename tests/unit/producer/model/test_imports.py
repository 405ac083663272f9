"""What importing the values loads: Spark's Python workers import them as well."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import producer.model


def test_values_load_no_broker_and_no_catalog() -> None:
    modules = ", ".join(f"producer.model.{module.name}" for module in pkgutil.iter_modules(producer.model.__path__))
    code = f"import sys, {modules}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "producer.model.staged" in loaded
    assert not {name.partition(".")[0] for name in loaded} & {"celery", "kombu", "redis", "pyarrow"}
    assert not loaded & {"pyiceberg.catalog", "pyiceberg.io", "pyiceberg.table"}  # types and transforms are values
