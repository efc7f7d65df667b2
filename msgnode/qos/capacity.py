"""Finds free capacity on the TURN servers, and the one that fits a reservation best. Blocks.

The bookings of a server are the sum of its reservations that have not ended.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from django.db import connection
from django.db.models import Sum

from msgnode.core.errors import Unavailable

from .models import Reservation, RoundTrip, TurnServer

Rank = tuple[bool, float, float, float]
OPEN = (Reservation.State.HELD, Reservation.State.ACTIVE)


@dataclass(slots=True)
class Room:
    """The servers, locked, with what is free on each in bits per second."""

    servers: dict[int, TurnServer] = field(default_factory=dict)
    free: dict[int, int] = field(default_factory=dict)

    @classmethod
    def locked(cls) -> Room:
        """The present state, locked so that nobody else can book until the transaction ends."""
        rows = (
            TurnServer.objects.select_for_update(of=("self",))
            if locks_rows()
            else (TurnServer.objects.all())
        )
        return cls.of(list(rows.select_related("traffic_class").order_by("pk")))

    @classmethod
    def of(cls, servers: Sequence[TurnServer]) -> Room:
        """The free capacity of these servers."""
        used = booked()
        room = cls({each.pk: each for each in servers})
        room.free = {each.pk: each.capacity - used.get(each.pk, 0) for each in servers}
        return room

    def take(self, traffic_class: str, bitrate: int, near: Sequence[str] = ()) -> TurnServer:
        """Book on the best server for the access networks of the ends (`near`).

        Raises:
            Unavailable: there is no room; the text says what is lacking.
        """
        usable = [
            each
            for each in self.servers.values()
            if each.is_enabled
            and each.state != TurnServer.State.DOWN
            and each.carries(traffic_class)
        ]
        if not usable:
            raise Unavailable(f"No TURN server for class {traffic_class} is up.")
        fitting = [each for each in usable if self.free[each.pk] >= bitrate]
        if not fitting:
            raise Unavailable(
                f"No TURN server has room for class {traffic_class}, {bitrate} bit/s, now."
            )
        far = distances(near) if near and len(fitting) > 1 else {}
        fittest = min(fitting, key=lambda each: self._rank(each, far))
        self.free[fittest.pk] -= bitrate
        return fittest

    def _rank(self, server: TurnServer, far: Mapping[int, float]) -> Rank:
        """One of its class before one of all classes, the nearest, the emptiest, then by chance."""
        share = 1 - self.free[server.pk] / server.capacity
        distance = far.get(server.pk, math.inf)
        chance = random.random()  # noqa: S311  (no secret)
        return server.traffic_class is None, distance, share, chance


def distances(near: Sequence[str]) -> dict[int, float]:
    """Milliseconds of round trip from these networks together, of servers that know them all."""
    known: dict[int, dict[str, float]] = {}
    for row in RoundTrip.objects.filter(network__in=set(near)):
        known.setdefault(row.server_id, {})[row.network] = row.milliseconds
    return {
        server: sum(trips[each] for each in near)
        for server, trips in known.items()
        if trips.keys() >= set(near)
    }


def locks_rows() -> bool:
    """Whether the database locks rows; SQLite has one writer, which is the same."""
    return connection.features.has_select_for_update


def booked() -> dict[int, int]:
    """Bits per second booked on each server that has any."""
    rows = Reservation.objects.filter(state__in=OPEN, server__isnull=False)
    sums = rows.order_by().values("server").annotate(bits=Sum("bitrate"))
    return {row["server"]: row["bits"] for row in sums}
