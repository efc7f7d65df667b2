"""Where a message is, by its id: it waits, has left, is stored, was set aside, or has passed."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from msgnode.console.roles import OPERATOR
from msgnode.core.record import Outcome, TrafficRecord
from msgnode.federation import stored_messages
from msgnode.federation.exchange import ASKED_SECONDS
from msgnode.federation.monitoring import MOST, SHOWN_AFTER
from msgnode.models import Peer, PeerMessage, StoredMessage
from msgnode.traffic.recorder import ParquetRecorder, RecordOptions
from tests.console.test_peer_messages import as_role
from tests.console.test_peers_api import post

from .test_peer_exchange import response
from .test_stored_messages import Worker
from .test_waiting_messages import Place

B = "b.example"
WHERE = f"/api/v1/peers/{B}/where/"

pytestmark = pytest.mark.django_db


@pytest.fixture
def place(db: None) -> Place:
    return Place(Peer.objects.create(domain=B, state="disconnected").pk)


def stages(id_: object) -> list[tuple[str, str]]:
    """What an operator is told of an id: the stages, each with its words."""
    told = as_operator().get(WHERE, {"id": id_})
    assert told.status_code == 200, told.content
    return [(each["stage"], each["text"]) for each in told.json()]


def as_operator() -> Client:
    if not User.objects.filter(username=OPERATOR).exists():
        as_role(OPERATOR)
    client = Client()
    client.force_login(User.objects.get(username=OPERATOR))
    return client


def test_case_74_a_message_is_found_while_it_waits_and_until_its_response(
    place: Place, settings: Any
) -> None:
    settings.RECORD = {**settings.RECORD, "ON": False}
    place.put(7)
    place.put(77)
    assert stages(7) == []
    place.follow(SHOWN_AFTER)
    assert stages(7) == [("waits", "peer: disconnected")]
    place.exchange.take()
    place.follow(SHOWN_AFTER)
    (row,) = PeerMessage.objects.filter(is_sent=True)
    assert abs((row.until - row.since).total_seconds() - ASKED_SECONDS) < 1
    assert stages(7) == [("sent", "no response yet")]
    assert stages(77) == [("waits", "peer: disconnected")]
    place.exchange.taken_in(response(7))
    place.follow()
    assert stages(7) == []


def test_case_74_what_has_left_can_be_neither_retried_nor_discarded(place: Place) -> None:
    place.put(7)
    place.exchange.take()
    (row,) = place.follow(SHOWN_AFTER)
    operator = as_operator()
    queue = f"/api/v1/peers/{B}/queue/"
    assert operator.get(queue).json()["results"] == []
    assert post(operator, f"{queue}discard/", messages=[row.pk]).json()["left"] == [row.pk]
    page = reverse("admin:msgnode_peermessage_changelist")
    form = {"action": "discard", "_selected_action": [row.pk], "confirmed": "yes"}
    operator.post(page, form)
    place.apply()
    assert place.answers == []
    assert PeerMessage.objects.filter(pk=row.pk).exists()
    assert (
        "it was sent, and there is no response yet"
        in operator.get(page, {"q": "7"}).content.decode()
    )


def test_rows_of_what_has_no_response_are_bounded_and_written_once(place: Place) -> None:
    for number in range(MOST + 5):
        place.put(number)
        place.exchange.take()
    assert len(place.follow(SHOWN_AFTER)) == MOST
    written = place.written
    place.follow(10)
    assert place.written == written
    place.exchange.fail_asked("The way is over.")
    assert place.follow() == []


@pytest.mark.parametrize("id_", ["mseven", '"mseven"'])
def test_case_74_a_stored_message_is_found_and_what_became_of_it(settings: Any, id_: str) -> None:
    settings.RECORD = {**settings.RECORD, "ON": False}
    worker = Worker()
    worker.put("seven")
    assert [stage for stage, _ in stages(id_)] == ["stored"]
    stored_messages._set_row_aside(StoredMessage.objects.get().key, "It was tried 3 times.")
    assert stages(id_) == [("set aside", "It was tried 3 times.")]


def test_case_74_what_has_passed_is_in_the_record_with_its_response(
    place: Place, settings: Any, tmp_path: Path
) -> None:
    settings.RECORD = {**settings.RECORD, "ON": True, "URL": str(tmp_path)}
    ours, theirs = "hyperty://a.example/1", f"hyperty://{B}/1"
    recorder = ParquetRecorder(
        RecordOptions(str(tmp_path / "raw")), node="n", worker="w",
        raise_alarm=lambda *_: None, clear_alarm=lambda *_: None,
    )  # fmt: skip
    now = datetime.now(UTC).timestamp()
    for type_, id_, sender, to in (
        ("read", '"seven"', ours, theirs),
        ("response", '"seven"', theirs, ours),
        ("read", '"seven"', ours, "hyperty://c.example/1"),
        ("read", '"other"', ours, theirs),
    ):
        recorder.note(TrafficRecord(now, "s", id_, type_, sender, to, 1, 1, Outcome.DELIVERED))
    recorder.flush()
    assert stages("seven") == [("passed", "delivered"), ("passed", "delivered")]
    out = io.StringIO()
    call_command("peers", "where", B, "--id", "seven", stdout=out)
    assert [line.split()[3] for line in out.getvalue().splitlines()] == ["read", "response"]
    out = io.StringIO()
    call_command("peers", "where", B, "--id", "seven", "--json", stdout=out)
    assert len(json.loads(out.getvalue())) == 2
    with pytest.raises(CommandError, match="no message nine"):
        call_command("peers", "where", B, "--id", "nine", stdout=io.StringIO())
    with pytest.raises(CommandError, match="--id"):
        call_command("peers", "where", B, stdout=io.StringIO())


def test_who_may_not_see_peers_is_told_nothing_and_no_id_is_an_error(place: Place) -> None:
    assert Client().get(WHERE, {"id": "7"}).status_code == 401
    assert as_operator().get(WHERE).status_code == 400
