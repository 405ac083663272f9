"""Connections: what an error says of a broker that cannot be used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from producer.broker.connections import connection_error, is_away

#: Hides a package from a process, as if it were not installed, and enqueues a table.
ENQUEUE = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
from producer import Fleet, Refused, Settings
settings = Settings(_env_file=None, broker_url=sys.argv[2], board_url=sys.argv[3])
try:
    Fleet(settings).convert("db.t") if sys.argv[2] else Fleet(settings).jobs()
except Refused as refused:
    print(refused.reason, refused, sep=": ")
"""
NOWHERE = "redis://127.0.0.1:9/0"


@pytest.mark.parametrize(
    ("package", "broker", "board", "says"),
    [
        ("redis", NOWHERE, "", f"The broker at {NOWHERE} needs the package redis, which is not installed here: "),
        ("kombu", NOWHERE, "", f"The broker at {NOWHERE} needs the package kombu, which is not installed here: "),
        ("celery", NOWHERE, "", f"The broker at {NOWHERE} needs the package celery, which is not installed here: "),
        ("redis", "", NOWHERE, f"The Redis at {NOWHERE} needs the package redis, which is not installed here: "),
        ("pymongo", "mongodb://h", "", "The broker at mongodb://h needs the package pymongo, "),
    ],
)
def test_a_missing_package(package: str, broker: str, board: str, says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENQUEUE, package, broker, board], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"configuration: {says}")
    extra = "celery[mongodb]." if package == "pymongo" else "celery[redis], which icefleet requires."
    assert done.stdout.rstrip().endswith(f": install {extra}")


@pytest.mark.parametrize(
    ("url", "text", "says"),
    [
        ("amqp://h//", "Connection refused", "nothing listens there: is it running, at this port, and bound"),
        ("amqp://h//", "Socket closed", "if it speaks TLS at this port, write amqps://"),
        ("amqps://h//", "timed out", "it seems to speak no TLS at this port: write amqp://"),
        ("rediss://h/0", "[SSL] record layer failure", "it seems to speak no TLS at this port: write redis://"),
        ("redis://h/0", "Connection reset by peer", "if it speaks TLS at this port, write rediss://"),
        ("redis://h/0", "timed out", "nothing came back in time"),
        (
            "rediss://h/0",
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired (_ssl.c:1006)",
            "does not answer: its certificate has expired: renew it, or check the clock of this machine",
        ),
        (
            "rediss://h/0",
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate is not yet valid (_ssl.c:1006)",
            "does not answer: its certificate is not valid yet: check the clock of this machine",
        ),
        ("redis+socket:///run/redis.sock", "Error 2. No such file or directory.", "is it running?"),
        ("redis://h/0", "NOREPLICAS Not enough good replicas to write.", "takes no writes: it has fewer replicas"),
    ],
)
def test_a_hint_fits_the_broker(url: str, text: str, says: str) -> None:
    error = connection_error(url, OSError(text))
    assert says in str(error)
    assert "redis.conf" not in str(error)
    assert is_away(error)


def test_waiting_does_not_mend_a_wrong_address() -> None:
    for problem in (OSError("invalid username-password pair"), KeyError("No such transport: x"), ImportError(name="x")):
        assert not is_away(connection_error("redis://h/0", problem))


def test_a_file_without_a_certificate_is_not_waited_for() -> None:
    error = connection_error("rediss://h/0", OSError("[X509: NO_CERTIFICATE_OR_CRL_FOUND] no certificate or crl found"))
    assert "the file that ssl_ca_certs names holds no certificate in PEM" in str(error)
    assert not is_away(error)
