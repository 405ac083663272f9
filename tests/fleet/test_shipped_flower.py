"""Flower as deploy/ ships it: on this machine alone, and for nobody without the login."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psutil
import pytest

from tests.fleet.localfleet import LOGIN, LocalFleet
from tests.support.repository import REPOSITORY

pytestmark = [pytest.mark.fleet, pytest.mark.redis]


@pytest.fixture(scope="module", params=[LOGIN, ""], ids=["with a login", "whose login was forgotten"])
def shipped(
    request: pytest.FixtureRequest, redis_installed: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalFleet]:
    """Redis, and the command of the service at another port."""
    fleet = LocalFleet(tmp_path_factory.mktemp("flower"))
    lines = (REPOSITORY / "deploy" / "icefleet-flower.service").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("ExecStart="))
    command = [*shlex.split(line.removeprefix("ExecStart=/opt/icefleet/bin/")), f"--port={fleet.flower_port}"]
    given = [line.removeprefix("Environment=").partition("=") for line in lines if line.startswith("Environment=")]
    login = {name: value.replace("%S", str(fleet.root)) for name, _, value in given}
    assert login == {"ICEFLEET_STATE_DIR": f"{fleet.root}/icefleet"}
    if request.param:
        login["FLOWER_BASIC_AUTH"] = request.param
    try:
        fleet.start_redis()
        fleet.processes.start("flower", command, fleet.environment | login)
        fleet.processes.wait_for("Flower", lambda: _listens(fleet), 30)
        yield fleet
    finally:
        fleet.stop()


def _listens(fleet: LocalFleet) -> list[str]:
    """The addresses that Flower takes connections at."""
    found = psutil.Process(fleet.processes.running["flower"].pid).net_connections("inet")
    return [connection.laddr.ip for connection in found if connection.status == psutil.CONN_LISTEN]


def test_it_listens_on_this_machine_alone(shipped: LocalFleet) -> None:
    assert set(_listens(shipped)) == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/api/workers", None),
        ("/api/tasks", None),
        ("/api/task/info/x", None),
        ("/api/worker/shutdown/x", b""),
        ("/api/worker/pool/restart/x", b""),
        ("/api/task/revoke/x", b""),
        ("/api/task/send-task/icefleet.sweep", b"{}"),
        ("/api/task/async-apply/icefleet.sweep", b"{}"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_its_api_answers_nobody_without_the_login(shipped: LocalFleet, path: str, data: bytes | None) -> None:
    request = Request(f"http://127.0.0.1:{shipped.flower_port}{path}", data)
    with pytest.raises(HTTPError) as refused:
        urlopen(request, timeout=10)
    assert refused.value.code == 401
    assert shipped.redis.llen("sweep") == 0
