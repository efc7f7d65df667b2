"""The node's own broker behind the connector: what it books, and what it hands out."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import AsyncIterator

import pytest

from msgnode.core.errors import Forbidden, Unavailable
from msgnode.qos import secret_store
from msgnode.qos.bookings import Limits
from msgnode.qos.broker import Criteria
from msgnode.qos.embedded_broker import EmbeddedBroker
from msgnode.qos.models import TurnSecret
from msgnode.qos.store import ReservationStore

from . import rows
from .rows import VIDEO

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
async def store() -> AsyncIterator[ReservationStore]:
    store = ReservationStore(Limits())
    yield store
    await store.stop()


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
