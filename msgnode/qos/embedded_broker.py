"""The node's own broker: books bandwidth on TURN servers, and hands out credentials for them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from msgnode.core.errors import NotFound

from . import bookings, credentials, secret_store
from .bookings import Book, Extend, Free
from .broker import Criteria, Order, Owner, Value
from .capacity import Room, distances
from .models import Customer, Reservation, TrafficClass, TurnServer
from .store import ReservationStore

_SECRET_SECONDS = 1.0
"""How old the signing secret may be that a worker knows."""


class NotedReservations:
    """What any Broker tells of reservations as they are noted here, whoever grants them.

    Args:
        store: of the reservations.
    """

    def __init__(self, store: ReservationStore) -> None:
        self._store = store

    async def read(self, id_: str, owner: Owner) -> Value:
        """One reservation of this owner; 404 for anybody else's."""
        return await self._store.in_thread(lambda: shown(bookings.find(id_, owner)))

    async def list(self, owner: Owner) -> list[Value]:
        """The open reservations of this owner."""
        return await self._store.in_thread(lambda: [shown(row) for row in bookings.open_of(owner)])


class EmbeddedBroker(NotedReservations):
    """Implements Broker on the database."""

    def __init__(self, store: ReservationStore) -> None:
        super().__init__(store)
        self._secret = ("", 0.0)

    async def inquire(self, criteria: Criteria) -> Value:
        """The capacity of the TURN servers, and how much of it is booked and free."""
        return await self._store.in_thread(lambda: _resources(criteria))

    async def reserve(self, order: Order, owner: Owner) -> Value:
        """Book it, and sign the credential for the TURN server that was chosen."""
        return await self._granted(await self._store.submit(Book(order, owner)))

    async def renew(self, id_: str, seconds: int, owner: Owner) -> Value:
        """Book it for longer, and sign a new credential."""
        return await self._granted(await self._store.submit(Extend(id_, seconds, owner)))

    async def release(self, id_: str, owner: Owner) -> None:
        """Free the bandwidth that was booked."""
        await self._store.submit(Free(id_, owner))

    async def _granted(self, row: Reservation) -> Value:
        end = credentials.end_of(row.users[-1])
        credential = credentials.make(await self._signing(), row.id, end)
        server = {
            "urls": [line for line in row.server.urls.split() if line] if row.server else [],
            "username": credential.username,
            "credential": credential.password,
        }
        return granted(row, [server])

    async def _signing(self) -> str:
        """The secret that signs now, read from the database once a second at most."""
        secret, read = self._secret
        if not secret or time.monotonic() - read > _SECRET_SECONDS:
            secret = await self._store.in_thread(secret_store.signing)
            self._secret = (secret, time.monotonic())
        return secret


def shown(row: Reservation) -> Value:
    """The owner's view of a reservation, without its credential."""
    value: dict[str, Any] = {
        "reservationId": row.id,
        "state": row.state,
        "class": row.traffic_class,
        "bitrate": row.bitrate,
        "expires": row.expires_at.isoformat(timespec="seconds"),
        "seconds": max(0, round((row.expires_at - timezone.now()).total_seconds())),
        "received": row.received,
        "sent": row.sent,
    }
    if row.reason:
        value["reason"] = row.reason
    if row.about:
        value["sessionId"] = row.about
    return value


def granted(row: Reservation, servers: list[Value]) -> Value:
    """An RTCConfiguration of these servers, with the reservation that they were granted for."""
    return {**shown(row), "iceServers": servers, "iceTransportPolicy": "relay"}


def _resources(criteria: Criteria) -> Value:
    servers = list(TurnServer.objects.filter(is_enabled=True).select_related("traffic_class"))
    room = Room.of(servers)
    far = distances(criteria.near) if criteria.near else {}
    classes = [
        _class(row, room, far)
        for row in TrafficClass.objects.all()
        if not criteria.media or row.name in criteria.media
    ]
    value: Value = {"classes": classes}
    if criteria.customer:
        customer = Customer.objects.filter(name=criteria.customer).first()
        if customer is None:
            raise NotFound(f"There is no customer {criteria.customer}.")
        value["cspId"] = customer.name
        value["consumed"] = {"data": customer.used}
        if customer.quota is not None:
            value["quota"] = {"data": customer.quota}
            value["available"] = {"data": max(0, customer.quota - customer.used)}
    return value


def _class(row: TrafficClass, room: Room, far: Mapping[int, float]) -> Value:
    """Total, booked and free capacity of the servers with a class, and of each of them."""
    mine = [each for each in room.servers.values() if each.carries(row.name)]
    up = [each for each in mine if each.state != TurnServer.State.DOWN]
    return {
        "class": row.name,
        "bitrate": row.bitrate,
        "capacity": sum(each.capacity for each in up),
        "booked": sum(each.capacity - room.free[each.pk] for each in up),
        "free": sum(room.free[each.pk] for each in up),
        "servers": [
            {
                "url": next(iter(each.urls.split()), ""),
                "up": each.state != TurnServer.State.DOWN,
                "allocations": each.sessions,
                "load": round(1 - room.free[each.pk] / each.capacity, 4),
                **({"roundTrip": far[each.pk]} if each.pk in far else {}),
            }
            for each in mine
        ],
    }
