"""What metrics and the alarm turn-full say of servers, reservations and customers."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from msgnode.core.errors import Unavailable
from msgnode.ops import metrics
from msgnode.qos import bookings, figures
from msgnode.qos.bookings import Book, Free, Limits
from msgnode.qos.component import QosConnector
from msgnode.qos.embedded_broker import EmbeddedBroker
from msgnode.qos.models import Customer, Reservation, TurnServer
from msgnode.qos.relays import Relays, RoomWatch
from msgnode.qos.service import QosService

from . import rows
from .rows import VIDEO

pytestmark = pytest.mark.django_db


def reserve(**order: Any) -> Reservation:
    row = bookings.apply([Book(rows.video(**order), rows.owner())], Limits())[0]
    assert isinstance(row, Reservation), row
    return row


def told(settings: Any) -> dict[str, dict[tuple[str, ...], float]]:
    """What /metrics says, by name and labels."""
    settings.QOS = {**settings.QOS, "BROKER": "embedded"}
    return {
        metric.name: {tuple(sample.labels.values()): sample.value for sample in metric.samples}
        for metric in metrics.of_qos()
    }


def test_metrics_tell_of_servers_reservations_and_customers(settings: Any) -> None:
    rows.server("t1", capacity=2 * VIDEO, state="up")
    rows.server("t2", capacity=VIDEO, state="down")
    rows.server("off", is_enabled=False)
    rows.server("new")
    rows.customer("csp1", quota=1000, used=300)
    rows.customer("free", used=7)
    TurnServer.objects.filter(name="t1").update(sessions=3)
    TurnServer.objects.exclude(name="t1").update(state="down")
    row = reserve(customer="csp1")
    TurnServer.objects.filter(name="new").update(state="unknown")
    Reservation.objects.filter(pk=row.pk).update(state="active")
    reserve()
    found = told(settings)
    assert found["msgnode_turn_up"] == {("t1",): 1, ("t2",): 0}
    assert found["msgnode_turn_capacity_bits"][("t1",)] == 2 * VIDEO
    assert ("off",) not in found["msgnode_turn_capacity_bits"]
    assert sum(found["msgnode_turn_booked_bits"].values()) == 2 * VIDEO
    assert found["msgnode_turn_allocations"][("t1",)] == 3
    assert found["msgnode_qos_reservations"] == {("held",): 1, ("active",): 1}
    assert found["msgnode_qos_used_bytes"] == {("csp1",): 300, ("free",): 7}
    assert found["msgnode_qos_quota_bytes"] == {("csp1",): 1000}


def test_a_node_without_a_broker_tells_nothing(settings: Any) -> None:
    rows.server("t1", state="up")
    assert not any(metric.samples for metric in metrics.of_qos())


def test_the_number_of_customers_that_are_told_of_is_bounded(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "MOST_CUSTOMERS", 2)
    Customer.objects.bulk_create(Customer(name=f"c{n}", used=n) for n in range(5))
    assert told(settings)["msgnode_qos_used_bytes"] == {("c4",): 4, ("c3",): 3}


class Alarms:
    """What stands, and how often something was raised."""

    def __init__(self) -> None:
        self.standing: dict[str, str] = {}
        self.raised = 0

    def start(self, kind: str, subject: str, text: str) -> None:
        assert kind == "turn-full"
        self.standing[subject] = text
        self.raised += 1

    def clear(self, kind: str, subject: str) -> None:
        assert kind == "turn-full"
        self.standing.pop(subject, None)


async def here(call: Callable[[], Any]) -> Any:
    from asgiref.sync import sync_to_async

    return await sync_to_async(call)()


def look(watch: RoomWatch) -> None:
    from asgiref.sync import async_to_sync

    watch._looked = 0.0
    async_to_sync(watch.look)(here)


def test_turn_full_stands_while_no_server_has_room_for_a_flow() -> None:
    alarms = Alarms()
    watch = RoomWatch(alarms.start, alarms.clear)
    rows.server(capacity=VIDEO + 2_000_000)
    look(watch)
    assert alarms.standing == {}
    row = reserve()
    look(watch)
    look(watch)
    assert list(alarms.standing) == ["video"]
    assert str(VIDEO) in alarms.standing["video"] and "2000000" in alarms.standing["video"]
    assert alarms.raised == 1
    bookings.apply([Free(row.pk, rows.owner())], Limits())  # of somebody else: nothing changes
    look(watch)
    assert list(alarms.standing) == ["video"]
    Reservation.objects.update(state="ended")
    look(watch)
    assert alarms.standing == {}


def test_a_class_whose_servers_are_all_down_is_not_full_and_another_server_is_room() -> None:
    rows.server("small", capacity=1_000)
    assert set(figures.full_classes()) >= {"audio", "video"}
    rows.server("video", capacity=VIDEO, traffic_class="video")
    assert "video" not in figures.full_classes()
    TurnServer.objects.update(state="down")
    assert figures.full_classes() == {}


def test_the_next_supervisor_clears_what_the_one_before_has_raised() -> None:
    alarms = Alarms()
    alarms.standing["video"] = "raised by another worker"
    rows.server(capacity=10 * VIDEO)
    look(RoomWatch(alarms.start, alarms.clear))
    assert alarms.standing == {}


def nothing(*_: object) -> None:
    """Nobody listens."""


def connector_of(broker: EmbeddedBroker | None, refusal: str = "") -> QosConnector:
    return QosConnector("localhost", lambda: broker, refusal, lambda: ("off", ""), nothing)


async def test_case_42_without_tls_no_credential_is_given_and_the_answer_says_why() -> None:
    connector = connector_of(EmbeddedBroker(cast(Any, None)), "over TLS only")
    order = {"resource": "/reservations", "value": {"class": "video"}}
    renewal = {"resource": "/reservations/abc"}
    for type_, body in (("create", order), ("update", renewal)):
        message: Any = SimpleNamespace(type=type_, fields=lambda body=body: body)
        with pytest.raises(Unavailable, match="over TLS only"):
            connector.answer(message, SimpleNamespace())
    assert dict(connector.requests) == {("reserve", 503): 1, ("renew", 503): 1}


async def test_requests_are_counted_by_what_they_ask_for_and_their_code() -> None:
    connector = connector_of(None)
    message: Any = SimpleNamespace(type="create", fields=lambda: {"resource": "/resources"})
    for _ in range(2):
        with pytest.raises(Exception, match="no QoS broker"):
            connector.answer(message, SimpleNamespace())
    assert dict(connector.requests) == {("unreadable", 503): 2}


def test_the_state_of_broker_servers_and_redis_is_told() -> None:
    service: Any = QosService.__new__(QosService)
    service._otherwise = service._remote = None
    service._instead = SimpleNamespace(is_chosen=False)
    assert service.state == "off"
    relays = Relays("me", "redis://x", "r", 15, 60, nothing, nothing, nothing)
    service._otherwise = "embedded"
    service.supervisor = SimpleNamespace(relays=relays, supervises=False)
    assert service.state == "standby"
    service.supervisor.supervises = True
    relays.servers.up = {"a": True, "b": False}
    assert service.state == "1 of 2 TURN servers up"
    relays._redis = SimpleNamespace(is_listening=False)  # type: ignore[assignment]
    assert service.state == "1 of 2 TURN servers up, Redis away"
    service._remote = SimpleNamespace(fault="The QoS broker does not answer.")
    assert service.state == "away"
    service._remote.fault = ""
    assert service.state == "connected"
