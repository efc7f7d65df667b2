"""The rows of TURN servers: what is to be done at each, and what was found. Blocks.

The worker with the claim `qos` supervises, while its own lease runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from django.db import transaction

from msgnode.identity.encryption import decrypt
from msgnode.models import Alarm
from msgnode.storage import claims
from msgnode.storage.alarms import TURN_DOWN, clear_alarm

from . import bookings, credentials
from .models import Reservation, TurnServer

NAME = "qos"

hold_claim = partial(claims.take, NAME)
check_claim = partial(claims.check, NAME)
give_up_claim = partial(claims.release, NAME)


CUTS = 50
"""Most reservations whose sessions are ended in one visit to a server."""


@dataclass(slots=True)
class Visit:
    """The work of the supervisor at a server, and its result.

    Attributes:
        cuts: user names by reservation.
        is_polled: whether all its sessions are to be listed.
        is_up: whether it answers, None if it was not visited.
        users: the users with sessions there, None if unknown.
        cut: reservations that have nothing left there.
    """

    server: int
    name: str
    urls: list[str]
    command_line: str
    password: str = field(repr=False)
    cuts: dict[str, list[str]]
    is_polled: bool
    is_up: bool | None = None
    users: list[str] | None = None
    fault: str = ""
    cut: list[str] = field(default_factory=list)


def visits(polled: Iterable[int]) -> list[Visit]:
    """The servers with something to do; those in `polled` need no visit.

    Each server has a number of its own: what cannot be ended at one that is gone delays no other.
    """
    resting = set(polled)
    ended = Reservation.objects.filter(state="ended", cut_at=None, server__isnull=False)
    cuts = {
        server: dict(
            ended.filter(server=server).order_by("ended_at").values_list("pk", "users")[:CUTS]
        )
        for server in ended.order_by().values_list("server", flat=True).distinct()
    }
    servers = list(TurnServer.objects.all())
    down = Alarm.objects.filter(kind=TURN_DOWN, cleared_at=None)
    for name in down.exclude(subject__in=[server.name for server in servers]).values_list(
        "subject"
    ):
        clear_alarm(TURN_DOWN, *name)  # it was removed, or is called otherwise now
    return [
        Visit(
            server.pk,
            server.name,
            server.urls.split(),
            server.command_line,
            decrypt(server.sealed_password),
            cuts.get(server.pk, {}),
            server.pk not in resting,
        )
        for server in servers
        if server.pk not in resting or server.pk in cuts
    ]


def settle(epoch: str, visit: Visit, is_up: bool) -> None:
    """Write down what a visit has found. Raises NotHolder."""
    with transaction.atomic():
        check_claim(epoch)
        at = bookings.now()
        if visit.cut:
            Reservation.objects.filter(pk__in=visit.cut).update(cut_at=at)
        if not visit.is_polled:
            return
        state = TurnServer.State.UP if is_up else TurnServer.State.DOWN
        more = {} if visit.users is None else {"polled_at": at, "sessions": len(visit.users)}
        TurnServer.objects.filter(pk=visit.server).update(
            state=state, fault=visit.fault[:255], **more
        )
        if visit.users:
            ids = list({credentials.reservation_of(user) for user in visit.users} - {""})
            bookings.mark_used(Reservation.objects.filter(pk__in=ids), is_running=True)
