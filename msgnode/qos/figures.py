"""Figures of servers, reservations and customers in the database, for metrics and alarms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from django.db.models import Count

from .capacity import OPEN, Room, booked
from .models import Customer, Reservation, TrafficClass, TurnServer

MOST_CUSTOMERS = 100
"""Most customers reported, those with most traffic."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of the whole node; empty without a broker.

    Attributes:
        up: whether a server answers, by its name; without servers not visited yet.
        capacity, booked: of a server, in bits per second.
        allocations: of a server at its last visit.
        reservations: that have not ended, by state.
        used, quota: of a customer, in bytes.
    """

    up: dict[str, int] = field(default_factory=dict)
    capacity: dict[str, int] = field(default_factory=dict)
    booked: dict[str, int] = field(default_factory=dict)
    allocations: dict[str, int] = field(default_factory=dict)
    reservations: dict[str, int] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    quota: dict[str, int] = field(default_factory=dict)


def read() -> Figures:
    """The figures as they are now."""
    servers = list(TurnServer.objects.filter(is_enabled=True))
    taken = booked()
    rows = Reservation.objects.filter(state__in=OPEN).order_by()
    counted = dict(rows.values_list("state").annotate(number=Count("pk")))
    customers = list(Customer.objects.order_by("-used", "name")[:MOST_CUSTOMERS])
    return Figures(
        up={
            each.name: int(each.state == TurnServer.State.UP)
            for each in servers
            if each.state != TurnServer.State.UNKNOWN
        },
        capacity={each.name: each.capacity for each in servers},
        booked={each.name: taken.get(each.pk, 0) for each in servers},
        allocations={each.name: each.sessions for each in servers},
        reservations={str(state): counted.get(state, 0) for state in OPEN},
        used={each.name: each.used for each in customers},
        quota={each.name: each.quota for each in customers if each.quota is not None},
    )


def classes() -> list[str]:
    """The names of the traffic classes."""
    return list(TrafficClass.objects.values_list("name", flat=True))


def full_classes() -> dict[str, str]:
    """The traffic classes for which no server that is up has room for one more flow, and why."""
    servers = TurnServer.objects.filter(is_enabled=True).exclude(state=TurnServer.State.DOWN)
    room = Room.of(list(servers.select_related("traffic_class")))
    return dict(_full(room))


def _full(room: Room) -> Iterator[tuple[str, str]]:
    for row in TrafficClass.objects.all():
        free = [
            max(0, room.free[server.pk])
            for server in room.servers.values()
            if server.carries(row.name)
        ]
        if free and max(free) < row.bitrate:
            yield (
                row.name,
                f"No TURN server has room for one more flow of class {row.name}, which takes "
                f"{row.bitrate} bit/s; the most that is free on one is {max(free)}.",
            )
