"""What the broker holds, and what it lost: on a real Redis, with messages as Celery sends and delivers them."""

from __future__ import annotations

import pytest

from producer.broker.queue import Messenger, QueueInspector, plan_id, unit_id
from producer.common.settings import Settings
from producer.model.job import Operation, Request
from producer.model.plan import Plan, UnitHeader
from tests.fleet.localfleet import LocalFleet

pytestmark = pytest.mark.redis
UNITS = 2500


def _plan(units: int = 1) -> Plan:
    request = Request.new("db.events", operation=Operation.COMPACT)
    sizes = {"files": 1, "delete_files": 1, "rows": 1, "delete_rows": 1, "cost": 1}
    headers = tuple(UnitHeader(number=number, label=f"part={number}", **sizes) for number in range(units))
    return Plan(
        request=request,
        round=0,
        table_uuid="",
        location="file:///t",
        format_version=2,
        snapshot_id=1,
        sequence_number=1,
        units=headers,
    )


def _held(server: LocalFleet) -> frozenset[str]:
    held = QueueInspector(server.settings).task_ids
    assert held is not None
    return held


@pytest.fixture(autouse=True)
def nothing(server: LocalFleet) -> None:
    """An empty Redis."""
    server.redis.flushall()


def test_what_waits_is_held_however_much_it_is(server: LocalFleet) -> None:
    assert _held(server) == frozenset()
    plan = _plan(UNITS)
    messenger = Messenger(server.settings)
    messenger.plan(plan.request)
    messenger.stage(plan, range(UNITS))
    assert _held(server) == {plan_id(plan.request.job), *(unit_id(plan, unit) for unit in range(UNITS))}


def test_what_was_delivered_is_held_until_it_is_acknowledged(server: LocalFleet) -> None:
    plan = _plan()
    Messenger(server.settings).stage(plan, range(1))
    id_ = unit_id(plan, 0)
    with server.celery.connection_for_read() as connection:
        queue = connection.SimpleQueue("compact")
        message = queue.get(timeout=5)
        assert server.redis.llen("compact") == 0
        assert not QueueInspector(server.settings).is_lost(id_)
        message.ack()
        assert QueueInspector(server.settings).is_lost(id_)


def test_other_brokers_are_not_asked(server: LocalFleet) -> None:
    other = QueueInspector(Settings(_env_file=None, broker_url="memory://"))
    assert other.task_ids is None
    assert not other.is_lost("anything")
