"""PySpark's daemon of Python workers, with all that tasks import loaded before it forks them.

The workers share what is loaded, and the first tasks of a session need not import it.
"""

from __future__ import annotations

import gc

import pyspark.daemon
import pyspark.worker

import workers.formats.parquet.format_model
import workers.operations.convert
import workers.operations.rewrite  # noqa: F401

if __name__ == "__main__":
    gc.freeze()  # a collection would write to the pages that are shared
    pyspark.daemon.manager()
