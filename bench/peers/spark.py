"""A local Spark session with its documented defaults, but for cores, heap, and where it binds and spills."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from bench.peers.serving import Command, Lost


def arguments(description: str) -> argparse.ArgumentParser:
    """The options that all Spark peers take."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--cores", type=int, required=True)
    parser.add_argument("--heap-mb", type=int, required=True)
    parser.add_argument("--scratch", required=True, help="Folder for what Spark spills.")
    return parser


def start(asked: argparse.Namespace, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session with the cores and the heap that were asked for."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.appName("bench")
        .master(f"local[{asked.cores}]")
        .config("spark.driver.memory", f"{asked.heap_mb}m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", asked.scratch)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
    )
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def versions(spark: SparkSession, **more: str) -> dict[str, str]:
    """Of Spark, Java, and what else there is."""
    java = str(_jvm(spark).java.lang.System.getProperty("java.version"))
    return {"spark": spark.version, "java": java, **more}


def in_session(spark: SparkSession, work: Callable[[SparkSession, Mapping[str, Any]], Mapping[str, Any]]) -> Command:
    """A command that works in a session; of what fails in Java it says the first causes, shortly."""

    @wraps(work)
    def command(asked: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return work(spark, asked)
        except Py4JJavaError as error:
            raise RuntimeError(_causes(error)) from error
        except (Py4JError, OSError) as error:  # nobody answers any more
            raise Lost(f"Spark's process is gone: {type(error).__name__}: {error}") from error

    return command


def _causes(error: Py4JJavaError) -> str:
    texts: list[str] = []
    cause = error.java_exception
    while cause is not None and len(texts) < 5:
        texts.append(str(cause.toString()).splitlines()[0][:300])
        cause = cause.getCause()
    return " <- ".join(texts)


def _jvm(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm
