"""What waits for peers, as operators see and order it: in the console, over REST, by command."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from msgnode.console.roles import OPERATOR, VIEWER
from msgnode.federation import monitoring
from msgnode.models import Alarm, AuditEntry, ControlMessage, Peer, PeerMessage

from .accounts import as_role
from .test_peers_api import post

B = "b.example"
LIST = reverse("admin:msgnode_peermessage_changelist")
QUEUE = f"/api/v1/peers/{B}/queue/"

pytestmark = pytest.mark.django_db


@pytest.fixture
def rows() -> list[PeerMessage]:
    peer = Peer.objects.create(domain=B, state="disconnected", last_error="The line is cut.")
    now = timezone.now()
    return [
        PeerMessage.objects.create(
            peer=peer, queue="q" * 32, number=number, kind="request", type="read",
            sender="hyperty://a.example/1", to=f"hyperty://{B}/<b>{number}</b>", size=100,
            since=now, until=now + timedelta(seconds=seconds), text='{"type":"read"}',
        )
        for number, seconds in ((1, 60), (2, 60), (3, -1))
    ]  # fmt: skip


def orders() -> list[tuple[str, Any]]:
    said = ControlMessage.objects.order_by("id")
    return [(row.kind, row.payload["numbers"]) for row in said if row.kind.startswith("peers.")]


def act(client: Client, action: str, *rows: PeerMessage, **more: str) -> str:
    chosen = {"action": action, "_selected_action": [row.pk for row in rows], **more}
    said = client.post(LIST, chosen, follow=True)
    assert said.status_code == 200
    return str(said.content.decode())


def test_an_operator_sees_what_waits_and_why_and_nothing_that_is_over(
    rows: list[PeerMessage],
) -> None:
    page = as_role(OPERATOR).get(f"{LIST}?peer__domain={B}").content.decode()
    assert "disconnected: The line is cut." in page
    assert "&lt;b&gt;1" in page
    assert "<b>1" not in page
    assert "&lt;b&gt;2" in page
    assert "&lt;b&gt;3" not in page


def test_discarding_asks_first_and_is_noted(rows: list[PeerMessage]) -> None:
    operator = as_role(OPERATOR)
    assert "answered 503" in act(operator, "discard", rows[0])
    assert orders() == []
    said = act(operator, "discard", rows[0], confirmed="yes")
    assert "1 discarded" in said
    assert orders() == [(monitoring.DISCARD, [1])]
    assert not PeerMessage.objects.filter(pk=rows[0].pk).exists()
    entry = AuditEntry.objects.get(action="peer.discard")
    assert (entry.actor, entry.object, entry.after["messages"]) == (OPERATOR, B, 1)


def test_what_is_retried_stays_in_the_list(rows: list[PeerMessage]) -> None:
    act(as_role(OPERATOR), "retry", *rows[:2])
    assert orders() == [(monitoring.RETRY, [1, 2])]
    assert PeerMessage.objects.count() == 3
    assert AuditEntry.objects.filter(action="peer.retry").exists()


def test_all_that_waits_for_a_peer_is_discarded_after_a_question(rows: list[PeerMessage]) -> None:
    operator, peers = as_role(OPERATOR), reverse("admin:msgnode_peer_changelist")
    form = {"action": "discard", "_selected_action": [rows[0].peer_id]}
    assert b"answered 503" in operator.post(peers, form).content
    assert orders() == []
    operator.post(peers, {**form, "confirmed": "yes"})
    assert orders() == [(monitoring.DISCARD, None)]
    assert not PeerMessage.objects.exists()


def test_a_viewer_looks_and_is_offered_nothing(rows: list[PeerMessage]) -> None:
    viewer = as_role(VIEWER)
    page = viewer.get(LIST).content.decode()
    assert "&lt;b&gt;1" in page
    assert 'value="discard"' not in page
    act(viewer, "discard", rows[0], confirmed="yes")
    assert orders() == []
    assert viewer.get(QUEUE).status_code == 200
    for action in ("retry", "discard"):
        assert post(viewer, f"{QUEUE}{action}/", messages=[1]).status_code == 403
    assert Client().get(QUEUE).status_code == 401


def test_over_rest_one_reads_retries_and_discards(rows: list[PeerMessage]) -> None:
    operator = as_role(OPERATOR)
    first, second, over = (row.pk for row in rows)
    told = operator.get(QUEUE).json()
    assert [each["id"] for each in told["results"]] == [first, second]
    assert told["results"][0]["text"] == '{"type":"read"}'
    said = post(operator, f"{QUEUE}retry/", messages=[first, over, 999_999])
    assert said.status_code == 202
    assert said.json() == {"messages": [first], "left": sorted([over, 999_999])}
    assert post(operator, f"{QUEUE}discard/", messages=[second]).json()["messages"] == [second]
    assert post(operator, f"{QUEUE}discard/", messages=[second]).json()["left"] == [second]
    assert orders() == [(monitoring.RETRY, [1]), (monitoring.DISCARD, [2])]
    assert post(operator, f"{QUEUE}discard/").status_code == 202
    assert orders()[-1] == (monitoring.DISCARD, None)
    assert operator.get(QUEUE).json()["results"] == []


@pytest.mark.parametrize("wrong", [{}, {"messages": []}, {"messages": "all"}, {"messages": [-1]}])
def test_an_order_that_names_nothing_is_refused(
    rows: list[PeerMessage], wrong: dict[str, Any]
) -> None:
    refused = post(as_role(OPERATOR), f"{QUEUE}retry/", **wrong)
    assert refused.status_code == 400
    assert "messages" in refused.json()["errors"]
    assert orders() == []


def test_a_slip_in_the_name_of_a_field_discards_nothing(rows: list[PeerMessage]) -> None:
    refused = post(as_role(OPERATOR), f"{QUEUE}discard/", mesages=[rows[0].pk])
    assert refused.status_code == 400
    assert "mesages" in refused.json()["errors"]
    assert orders() == []


def test_by_command_one_lists_retries_and_discards(rows: list[PeerMessage]) -> None:
    def run(*words: str) -> str:
        out = StringIO()
        call_command("peers", *words, stdout=out, stderr=StringIO())
        return out.getvalue()

    assert "read hyperty://a.example/1" in run("queue", B)
    assert [each["id"] for each in json.loads(run("queue", B, "--json"))] == [
        rows[0].pk, rows[1].pk,
    ]  # fmt: skip
    assert "1 messages" in run("discard", B, "--messages", str(rows[0].pk))
    with pytest.raises(CommandError, match="wait no more"):
        run("retry", B, "--messages", str(rows[0].pk))
    run("retry", B)
    assert orders() == [(monitoring.DISCARD, [1]), (monitoring.RETRY, [2])]
    run("discard", B)
    assert orders()[-1] == (monitoring.DISCARD, None)


def test_the_alarm_of_a_stuck_peer_leads_to_what_waits_for_it(rows: list[PeerMessage]) -> None:
    alarm = Alarm.objects.create(kind="peer-stuck", subject=B, text="It is away.")
    page = reverse("admin:msgnode_alarm_change", args=[alarm.pk])
    waits = f"{LIST}?peer__domain={B}&amp;is_sent__exact=0"
    assert waits in as_role(VIEWER).get(page).content.decode()
