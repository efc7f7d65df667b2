"""The node's own broker behind the connector: what it books, and what it hands out."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import AsyncIterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone

from msgnode.core.errors import Forbidden, TooMany, Unavailable
from msgnode.qos import secret_store
from msgnode.qos.bookings import Limits
from msgnode.qos.broker import Criteria
from msgnode.qos.embedded_broker import EmbeddedBroker
from msgnode.qos.models import Reservation, TurnSecret
from msgnode.qos.service import QosService, ReservationFence
from msgnode.qos.store import ReservationStore
from msgnode.qos.supervisor import Supervisor
from msgnode.storage.fence import unfenced

from . import rows
from .rows import VIDEO

pytestmark = pytest.mark.django_db(transaction=True)

ME = "epoch of mine"


@pytest.fixture
async def store() -> AsyncIterator[ReservationStore]:
    store = ReservationStore(Limits())
    yield store
    await store.stop()


class NoOther:
    """A broker that is not asked instead of the one of the settings."""

    is_chosen = False

    def __init__(self, store: ReservationStore) -> None:
        self.on_change: list[Any] = []


async def test_the_operators_settings_reach_the_broker_and_its_supervisor(settings: Any) -> None:
    no_other: Any = NoOther
    options = {
        **settings.QOS, "BROKER": "embedded", "MAX_PER_SUBJECT": 1, "REALM": "turn.example",
        "KEPT_DAYS": 3,
    }  # fmt: skip
    unused: Any = None
    alarms: Any = SimpleNamespace(raise_alarm=unused, clear_alarm=unused)
    fence = ReservationFence(ME, unfenced, lambda: None)
    service = QosService("d", options, fence, 60.0, unused, alarms, unused, no_other)
    await service.store.in_thread(lambda: rows.server(capacity=9 * VIDEO))
    first, second = await service.store.in_thread(lambda: (rows.owner("ann"), rows.owner("ann")))
    await EmbeddedBroker(service.store).reserve(rows.video(), first)
    with pytest.raises(TooMany):
        await EmbeddedBroker(service.store).reserve(rows.video(), second)
    assert service.supervisor.relays is not None
    assert service.supervisor.relays._realm == "turn.example"
    assert service.supervisor._kept == timedelta(days=3)
    await service.stop()


async def test_cases_21_24_and_25_a_reservation_is_booked_and_its_credential_is_good(
    store: ReservationStore,
) -> None:
    broker = EmbeddedBroker(store)
    await store.in_thread(lambda: rows.server(capacity=VIDEO))
    owner, other = await store.in_thread(lambda: (rows.owner(), rows.owner()))
    value = await broker.reserve(rows.video(), owner)
    (ice,) = value["iceServers"]
    secret = await store.in_thread(secret_store.signing)
    mac = hmac.new(secret.encode(), ice["username"].encode(), hashlib.sha1).digest()
    assert ice["credential"] == base64.b64encode(mac).decode()
    assert ice["username"].endswith(f":{value['reservationId']}")
    (video,) = (await broker.inquire(Criteria(media=("video",))))["classes"]
    assert (video["capacity"], video["booked"], video["free"]) == (VIDEO, VIDEO, 0)
    with pytest.raises(Unavailable):
        await broker.reserve(rows.video(), other)
    with pytest.raises(Forbidden):
        await broker.read(value["reservationId"], other)
    assert "iceServers" not in await broker.read(value["reservationId"], owner)
    await broker.release(value["reservationId"], owner)
    assert await broker.list(owner) == []


async def test_case_23_a_new_secret_signs_only_once_the_servers_know_it(
    store: ReservationStore,
) -> None:
    before = await store.in_thread(secret_store.signing)
    after = await store.in_thread(secret_store.rotate)
    assert await store.in_thread(secret_store.signing) == before
    assert await store.in_thread(lambda: secret_store.current(3600)) == [after, before]

    def age() -> None:
        for row in TurnSecret.objects.all():
            row.made_at -= secret_store.LEAD
            row.save()

    await store.in_thread(age)
    assert await store.in_thread(secret_store.signing) == after


class FailingRelays:
    async def round(self, in_thread: Any) -> None:
        raise OverflowError("a server says what cannot be")

    async def stop(self) -> None:
        """Nothing to stop."""


class NoNotifier:
    def tell(self, ended: list[Any]) -> list[str]:
        return [each.id for each in ended]


async def test_what_fails_at_the_turn_servers_keeps_no_reservation_from_its_end(
    store: ReservationStore,
) -> None:
    owner = await store.in_thread(lambda: (rows.worker(ME), rows.server(), rows.owner())[-1])
    value = await EmbeddedBroker(store).reserve(rows.video(), owner)
    past = timezone.now() - timedelta(seconds=1)
    await store.in_thread(lambda: Reservation.objects.update(expires_at=past))
    relays: Any = FailingRelays()
    notifier: Any = NoNotifier()
    seen: list[str] = []
    supervisor = Supervisor(
        ME, notifier, 60.0, 60.0, relays, timedelta(days=1), lambda end: seen.append(end.id)
    )
    await supervisor.round()
    await supervisor.stop()
    assert seen == [value["reservationId"]]
