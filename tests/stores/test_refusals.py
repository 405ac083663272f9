"""What users read if the store refuses: one sentence, without a secret, and nothing is committed."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from producer.iceberg.catalog import open_catalog
from tests.stores.conftest import settings_of
from tests.support.repository import REPOSITORY
from tests.support.stores import BUCKETS, KEY, SECRET, Store, add_user, running_with_tls
from tests.support.streamed import StreamedTable

_NUMBERS = itertools.count()
READER, WRITER, WORKER, USERS_SECRET = "reader-access-key", "writer-access-key", "worker-access-key", "secret-of-users"


@pytest.fixture(scope="module")
def table(servers: dict[str, Store]) -> StreamedTable:
    """A table on the strict store that no test changes."""
    store = servers["versitygw"]
    return StreamedTable.write(open_catalog("versitygw-icefleet"), store.location("refused"))


def icefleet(
    *arguments: str, catalog: str | None = "versitygw-icefleet", **properties: str
) -> subprocess.CompletedProcess[str]:
    """Run a command with other properties of the catalog."""
    environment = os.environ | settings_of("versitygw-icefleet", properties) | {"ICEFLEET_MAX_ATTEMPTS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "icefleet_main", *arguments, *(["--catalog", catalog] if catalog else [])],
        env=environment,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=200,
    )


REFUSALS = {
    "key": ({"s3.access-key-id": "unknown-access-key"}, "(InvalidAccessKeyId): it does not know the access key"),
    "secret": ({"s3.secret-access-key": "another-secret"}, "the secret does not belong to the access key"),
    "token": ({"s3.session-token": "expired-session-token"}, "(InvalidToken): it does not take the session token"),
    "region": ({"s3.region": "eu-west-9"}, "the region is wrong: correct s3.region"),
    "down": ({"s3.endpoint": "http://127.0.0.1:1"}, "http://127.0.0.1:1 does not answer: check that the storage runs"),
    "name": ({"s3.endpoint": "http://store.invalid"}, "the name of http://store.invalid is not known"),
    "scheme": ({"s3.endpoint": "htp://127.0.0.1:1"}, "s3.endpoint is 'htp://127.0.0.1:1', which is no address"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused_at_the_start(table: StreamedTable, name: str) -> None:
    properties, sentence = REFUSALS[name]
    before = table.table.table.metadata_location
    done = icefleet("convert", table.table.identifier, "--json", **properties)
    assert done.returncode == 2, done
    report = json.loads(done.stdout)
    assert sentence in report["reason"]
    assert report["status"] == "refused"
    assert_one_sentence_without_secrets(report["reason"], *properties.values())
    assert table.table.table.metadata_location == before


def test_an_endpoint_without_a_scheme(table: StreamedTable, servers: dict[str, Store]) -> None:
    """It is one of https, as for PyArrow."""
    endpoint = servers["versitygw"].address.removeprefix("http://")
    done = icefleet("plan", table.table.identifier, **{"s3.endpoint": endpoint})
    assert done.returncode == 2
    assert f"https://{endpoint} does not speak TLS: begin the endpoint with http://" in flat(done.stderr)


def test_a_bucket_that_does_not_exist(servers: dict[str, Store]) -> None:
    store = servers["versitygw"]
    store.client.create_bucket(Bucket="deleted")
    table = StreamedTable.write(open_catalog("versitygw-icefleet"), store.location("t", "deleted"))
    for key in store.client.list_objects_v2(Bucket="deleted")["Contents"]:
        store.client.delete_object(Bucket="deleted", Key=key["Key"])
    store.client.delete_bucket(Bucket="deleted")
    done = icefleet("plan", table.table.identifier)
    assert done.returncode == 2
    assert "there is no such bucket: correct the table's location, or the endpoint" in flat(done.stderr)


def test_what_check_says(table: StreamedTable) -> None:
    done = icefleet("check", table.table.identifier, "--json", **{"s3.endpoint": "http://127.0.0.1:1"})
    assert done.returncode == 1
    (wrong,) = [check for check in json.loads(done.stdout) if check["passed"] is False]
    assert wrong["name"] == "table"
    assert "does not answer" in wrong["detail"]


def test_a_clock_that_is_wrong(table: StreamedTable) -> None:
    library = next(Path("/usr/lib").glob("**/faketime/libfaketime.so.1"), None)
    if library is None:
        pytest.skip("libfaketime is not installed: run `scripts/bootstrap faketime`")
    environment = os.environ | {"LD_PRELOAD": str(library), "FAKETIME": "-2h", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    command = [sys.executable, "-m", "icefleet_main", "plan", table.table.identifier, "--catalog", "versitygw-icefleet"]
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=200)
    assert done.returncode == 2, done
    assert "(RequestTimeTooSkewed): this machine's clock differs from the store's" in flat(done.stderr)


@pytest.fixture(scope="module")
def users(servers: dict[str, Store]) -> Iterator[Store]:
    """The strict store with users: one may read, one may not delete, one has the rights that the documents name."""
    store = servers["versitygw"]
    (policy,) = re.findall(r"```json\n(.*?)```", (REPOSITORY / "docs/catalogs-and-storage.md").read_text(), re.DOTALL)
    documented = json.loads(policy)["Statement"]
    resources = [f"arn:aws:s3:::{BUCKETS[0]}", f"arn:aws:s3:::{BUCKETS[0]}/*"]
    reads = {"Effect": "Allow", "Action": ["s3:ListBucket", "s3:GetObject"], "Resource": resources}
    writes = reads | {"Action": ["s3:ListBucket", "s3:GetObject", "s3:PutObject"]}
    statements = []
    for user, allowed in ((READER, [reads]), (WRITER, [writes]), (WORKER, documented)):
        add_user(store, user, USERS_SECRET)
        statements += [statement | {"Principal": {"AWS": [user]}} for statement in allowed]
    everything = {"Version": "2012-10-17", "Statement": statements}
    store.client.put_bucket_policy(Bucket=BUCKETS[0], Policy=json.dumps(everything))
    yield store
    store.client.delete_bucket_policy(Bucket=BUCKETS[0])


def test_the_rights_that_the_documents_name_are_enough(users: Store) -> None:
    folder = f"rights{next(_NUMBERS)}"
    table = StreamedTable.write(open_catalog("versitygw-icefleet"), users.location(folder))
    credentials = {"s3.access-key-id": WORKER, "s3.secret-access-key": USERS_SECRET}
    for command in (["convert"], ["compact", "--tier", "full"], ["check"]):
        done = icefleet(*command, table.table.identifier, **credentials)
        assert done.returncode == 0, done
    assert table.scanned() == table.expected
    assert not [key for key in users.keys(folder) if "/_icefleet/" in key]


@pytest.mark.parametrize(("user", "right"), [(READER, "write"), (WRITER, "delete")])
def test_a_right_that_is_missing(users: Store, user: str, right: str) -> None:
    """Without the right to delete a job commits and cannot tidy up; it is resumed once the right is granted."""
    folder = f"rights{next(_NUMBERS)}"
    table = StreamedTable.write(open_catalog("versitygw-icefleet"), users.location(folder))
    before = table.table.table.current_snapshot()
    credentials = {"s3.access-key-id": user, "s3.secret-access-key": USERS_SECRET}
    assert icefleet("plan", table.table.identifier, **credentials).returncode == 0
    checked = icefleet("check", table.table.identifier, "--json", **credentials)
    assert checked.returncode == 1
    wrong, *others = [check for check in json.loads(checked.stdout) if check["passed"] is False]
    assert f"grant the right to {right} here" in wrong["detail"]
    assert_one_sentence_without_secrets(wrong["detail"], USERS_SECRET)
    done = icefleet("convert", table.table.identifier, "--json", **credentials)
    assert done.returncode == 1, done
    report = json.loads(done.stdout)
    assert f"grant the right to {right} here" in report["reason"]
    assert_one_sentence_without_secrets(report["reason"], USERS_SECRET)
    if right == "write":
        assert table.table.table.current_snapshot() == before
        return
    assert [check["name"] for check in others] == ["storage: left behind"]
    resumed = icefleet("resume", report["job"], catalog=None)
    assert resumed.returncode == 0, resumed
    assert table.scanned() == table.expected
    assert not [key for key in users.keys(folder) if "/_icefleet/" in key and "/check-" not in key]


def test_a_certificate_that_is_not_trusted(tmp_path: Path, table: StreamedTable) -> None:
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "9"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE"]
    subprocess.run([*made, "-subj", "/CN=x", *names, "-keyout", key, "-out", certificate], check=True)
    with running_with_tls(tmp_path, 13_000 + os.getpid() % 900, key, certificate) as store:
        endpoint = store.address.replace("http://", "https://")
        untrusted = icefleet("plan", table.table.identifier, **{"s3.endpoint": endpoint})
        os.environ["SSL_CERT_FILE"] = certificate
        try:
            trusted = icefleet("plan", table.table.identifier, **{"s3.endpoint": endpoint})
        finally:
            del os.environ["SSL_CERT_FILE"]
    assert untrusted.returncode == 2
    assert f"the certificate of {endpoint} is not trusted: have SSL_CERT_FILE name" in flat(untrusted.stderr)
    assert "the store" not in flat(trusted.stderr)
    assert "is missing" in flat(trusted.stderr)  # this store has other files


def flat(text: str) -> str:
    """A text without the line breaks of a terminal."""
    return " ".join(text.split())


def assert_one_sentence_without_secrets(text: str, *given: str) -> None:
    assert "\n" not in text
    assert "Debug" not in text
    assert SECRET not in text
    assert KEY not in text
    assert not [value for value in given if "secret" in value and value in text]
