"""The number of requests at a time: a setting, for all requests of a process and those of its Spark tasks."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from producer import Fleet, Settings
from producer.storage.concurrency import DEFAULT_REQUESTS, limit_requests, request_limit
from producer.storage.files import map_parallel
from producer.storage.object_store_io import ObjectStoreFileIO
from producer.storage.requests import request


@pytest.fixture(autouse=True)
def _default() -> Iterator[None]:
    yield
    limit_requests(DEFAULT_REQUESTS)


def test_no_more_requests_are_made_at_a_time() -> None:
    limit_requests(3)
    lock, running, most = threading.Lock(), 0, 0

    def call() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda _: request("GET", "s3://b/k", call, given_up=threading.Event()), range(40)))
    assert most == 3


def test_the_setting_is_the_limit() -> None:
    Fleet(Settings(broker_url="", storage_requests=5))
    assert request_limit().requests == 5
    barrier = threading.Barrier(5, timeout=10)
    map_parallel(lambda _: barrier.wait(), range(5))
    assert Settings(broker_url="").storage_requests == DEFAULT_REQUESTS


def test_spark_tasks_have_the_limit_of_the_process_that_sent_them() -> None:
    limit_requests(7)
    sent = pickle.dumps(ObjectStoreFileIO({"s3.region": "here"}))
    limit_requests(DEFAULT_REQUESTS)
    received = pickle.loads(sent)
    assert (received.requests_at_a_time, request_limit().requests) == (7, 7)
