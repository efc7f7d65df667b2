"""What people do about peers is written down, whichever way they do it; a viewer does nothing."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from msgnode.console.actor import acting_as
from msgnode.console.roles import OPERATOR, VIEWER
from msgnode.federation import store
from msgnode.federation.descriptor import FoundStub
from msgnode.models import AuditEntry, ControlMessage, Peer, PeerMessage
from tests.console.test_peers_api import as_role, post

B = "b.example"
PEERS, PEER = "/api/v1/peers/", f"/api/v1/peers/{B}/"
LIST, WAITING = (reverse(f"admin:msgnode_{name}_changelist") for name in ("peer", "peermessage"))
FOUND = FoundStub("one", "1" * 64, {"url": f"wss://{B}/ws"})

pytestmark = pytest.mark.django_db

Deed = Callable[[Client, Peer], Any]


@pytest.fixture
def peer() -> Peer:
    """It is approved, another stub was found since, and a message waits for it."""
    store.note_found(B, FOUND, store.NO_PLACE, is_open=False)
    store.approve(Peer.objects.get(), "Eve")
    store.note_found(
        B, FoundStub("two", "2" * 64, {"url": f"wss://{B}/ws"}), store.NO_PLACE, is_open=False
    )
    now = timezone.now()
    peer = Peer.objects.get()
    PeerMessage.objects.create(
        peer=peer, queue="q" * 32, number=1, kind="request", type="read", sender="s", to="t",
        size=1, since=now, until=now + timedelta(minutes=1),
    )  # fmt: skip
    ControlMessage.objects.all().delete()
    return peer


def somebody(role: str) -> Client:
    """A person of a role, who may log in to the console, too."""
    client = as_role(role)
    User.objects.filter(username=role).update(is_staff=True)
    return client


def on_page(action: str) -> Deed:
    def act(client: Client, peer: Peer) -> Any:
        form = {"action": action, "_selected_action": [peer.pk], "confirmed": "yes"}
        return client.post(LIST, form)

    return act


def on_message(action: str) -> Deed:
    def act(client: Client, peer: Peer) -> Any:
        chosen = [row.pk for row in peer.messages.all()]
        form = {"action": action, "_selected_action": chosen, "confirmed": "yes"}
        return client.post(WAITING, form)

    return act


def over_rest(path: str, **body: Any) -> Deed:
    return lambda client, peer: post(client, f"{PEER}{path}/", **body)


def went_back(client: Client, peer: Peer) -> Any:
    form = {"action": "go_back", "_selected_action": [peer.pk], "confirmed": "yes"}
    return client.post(LIST, {**form, "digest": FOUND.digest})


def of_message(path: str) -> Deed:
    return lambda client, peer: post(
        client, f"{PEER}{path}/", messages=[row.pk for row in peer.messages.all()]
    )


RATE = {"messages_per_second": 2_000}


def edited(client: Client, peer: Peer) -> Any:
    page = reverse("admin:msgnode_peer_change", args=[peer.pk])
    return client.post(page, {"url": "https://other.b.example", "hosts": "", "keys": "", **RATE})


def added(client: Client, peer: Peer) -> Any:
    form = {"domain": "c.example", "url": "", "hosts": "", "keys": "", **RATE}
    return client.post(reverse("admin:msgnode_peer_add"), form)


DEEDS: dict[str, Deed] = {
    "approve": on_page("approve"),
    "go back": went_back,
    "pause": on_page("pause"),
    "block": on_page("block"),
    "restart": on_page("restart"),
    "look": on_page("look_again"),
    "discard all": on_page("discard"),
    "remove": lambda client, peer: client.post(
        reverse("admin:msgnode_peer_delete", args=[peer.pk]), {"post": "yes"}
    ),
    "add": added,
    "edit": edited,
    "retry": on_message("retry"),
    "discard": on_message("discard"),
    "REST approve": over_rest("approve"),
    "REST go back": over_rest("approve", digest=FOUND.digest[:8]),
    "REST pause": over_rest("pause"),
    "REST block": over_rest("block"),
    "REST restart": over_rest("restart"),
    "REST look": over_rest("look"),
    "REST retry": of_message("queue/retry"),
    "REST discard": of_message("queue/discard"),
    "REST discard all": over_rest("queue/discard"),
    "REST add": lambda client, peer: post(client, PEERS, domain="c.example"),
    "REST edit": lambda client, peer: client.patch(
        PEER, {"hosts": "c.b.example"}, content_type="application/json"
    ),
    "REST remove": lambda client, peer: client.delete(PEER),
}


def state() -> tuple[Any, ...]:
    """Whatever a deed could have changed."""
    return (
        list(Peer.objects.values()),
        list(PeerMessage.objects.values()),
        list(ControlMessage.objects.values()),
    )


@pytest.mark.parametrize("deed", DEEDS)
def test_case_75_every_action_is_in_the_audit_log_with_who_did_it(peer: Peer, deed: str) -> None:
    client = somebody(OPERATOR)
    AuditEntry.objects.all().delete()
    answer = DEEDS[deed](client, peer)
    assert answer.status_code < 400, answer.content
    (entry,) = AuditEntry.objects.all()
    assert entry.actor == OPERATOR
    assert entry.object == ("c.example" if "add" in deed else B)
    assert entry.action.startswith("peer.")
    assert ControlMessage.objects.exists(), "and the workers are told"


@pytest.mark.parametrize("deed", DEEDS)
def test_case_75_a_viewer_looks_and_changes_nothing(peer: Peer, deed: str) -> None:
    client = somebody(VIEWER)
    assert client.get(LIST).status_code == client.get(PEER).status_code == 200
    AuditEntry.objects.all().delete()
    before = state()
    answer = DEEDS[deed](client, peer)
    if deed.startswith("REST"):
        assert answer.status_code == 403
    assert state() == before
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize(
    "words",
    [
        *((action, B) for action in ("approve", "block", "pause", "restart", "look", "remove")),
        *((action, B) for action in ("retry", "discard")),
        ("add", "c.example"),
    ],
)
def test_case_75_so_is_what_is_done_by_command(peer: Peer, words: tuple[str, str]) -> None:
    with acting_as("manage.py peers"):  # as command_line.py does
        call_command("peers", *words, stdout=io.StringIO(), stderr=io.StringIO())
    entry = AuditEntry.objects.get()
    assert entry.actor in ("manage.py peers", "command line")
    assert entry.object == words[1]


def test_case_72_both_ways_are_shown_by_themselves(peer: Peer) -> None:
    at = datetime(2026, 11, 26, 12, 0, 5, tzinfo=UTC).timestamp()
    figures = {
        "sent_per_second": 1.0, "received_per_second": 0.0, "round_trip_ms": 3.0,
        "sandbox_bytes": 1, "sandbox_cpu_percent": 0.1, "restarts": 0,
        "out": {"passed_at": at},
        "in": {"passed_at": at - 60, "failed_at": at, "error": "403 <not> permitted"},
    }  # fmt: skip
    store.note_figures({peer.pk: figures})
    client = somebody(VIEWER)
    told = client.get(PEER).json()["figures"]
    assert (told["out"], told["in"]) == (figures["out"], figures["in"])
    for page in (LIST, reverse("admin:msgnode_peer_change", args=[peer.pk])):
        text = client.get(page).content.decode()
        assert "passed 2026-11-26 12:00:05 UTC" in text
        why = "403 &lt;not&gt; permitted"
        said = f"error 2026-11-26 12:00:05 UTC: {why}; passed 2026-11-26 11:59:05 UTC"
        assert said in text
