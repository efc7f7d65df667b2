"""What is to be done at each TURN server, by the database."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from msgnode.models import Alarm
from msgnode.qos import turn_state
from msgnode.qos.models import Reservation, TurnServer
from msgnode.storage.alarms import raise_alarm

from . import rows

pytestmark = pytest.mark.django_db


def ended(server: TurnServer, number: int, seconds: float) -> None:
    """So many reservations of a server, which ended so long ago and may still run there."""
    at = timezone.now() - timedelta(seconds=seconds)
    Reservation.objects.bulk_create(
        Reservation(
            id=f"{server.name}-{each}", server=server, traffic_class="audio", bitrate=1,
            users=[f"1:{server.name}-{each}"], state="ended", reason="lost", ended_at=at,
            created_at=at, expires_at=at, session_id="0" * 32,
        )
        for each in range(number)
    )  # fmt: skip


def test_what_cannot_be_ended_at_a_server_that_is_gone_delays_no_other_server() -> None:
    gone, here = rows.server("gone"), rows.server("here")
    ended(gone, 30 * turn_state.CUTS, 600)
    ended(here, 1, 1)
    cuts = {visit.name: visit.cuts for visit in turn_state.visits([gone.pk, here.pk])}
    assert cuts["here"] == {"here-0": ["1:here-0"]}
    assert len(cuts["gone"]) == turn_state.CUTS


def test_a_server_with_nothing_to_end_is_visited_when_it_is_to_be_looked_at() -> None:
    one, other = rows.server("one"), rows.server("other")
    assert [visit.name for visit in turn_state.visits([one.pk])] == [other.name]


def test_the_alarm_of_a_server_that_was_removed_or_renamed_is_cleared() -> None:
    for name in ("removed", "before", "stays"):
        rows.server(name)
        raise_alarm("turn-down", name, "It does not answer.")
    TurnServer.objects.filter(name="removed").delete()
    TurnServer.objects.filter(name="before").update(name="now")
    turn_state.visits([])
    standing = Alarm.objects.filter(cleared_at=None)
    assert list(standing.values_list("subject", flat=True)) == ["stays"]
