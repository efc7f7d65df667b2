"""Peers in the console: what an operator sees of a stub, and decides about it."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from msgnode.federation import store
from msgnode.federation.descriptor import FoundStub
from msgnode.models import Alarm, AuditEntry, ControlMessage, Peer
from msgnode.storage.alarms import PEER_PENDING

LIST = reverse("admin:msgnode_peer_changelist")
ADD = reverse("admin:msgnode_peer_add")
SOURCE = "export default class { /* <script>alert(1)</script> */ }"

pytestmark = pytest.mark.django_db


@pytest.fixture
def peer() -> Peer:
    configuration: dict[str, Any] = {"url": "wss://b.example/ws"}
    store.note_found(
        "b.example", FoundStub(SOURCE, "1" * 64, configuration), store.NO_PLACE, is_open=False
    )
    return Peer.objects.get()


def act(client: Client, action: str, peer: Peer) -> str:
    said = client.post(LIST, {"action": action, "_selected_action": [peer.pk]}, follow=True)
    assert said.status_code == 200
    peer.refresh_from_db()
    return str(said.content.decode())


def test_an_operator_sees_source_and_digest_before_approving(
    admin_client: Client, peer: Peer
) -> None:
    page = admin_client.get(reverse("admin:msgnode_peer_change", args=[peer.pk])).content.decode()
    assert "1" * 64 in page
    assert "&lt;script&gt;" in page
    assert "<script>alert(1)" not in page


def test_an_approval_names_who_gave_it_and_reaches_the_workers(
    admin_client: Client, peer: Peer
) -> None:
    ControlMessage.objects.all().delete()
    Alarm.objects.create(kind=PEER_PENDING, subject=peer.domain, text="It waits.")
    assert "may run" in act(admin_client, "approve", peer)
    assert (peer.decision, peer.approved_digest) == ("approved", "1" * 64)
    assert peer.approved_by == "admin"
    assert ControlMessage.objects.filter(kind=store.CHANGED).exists()
    assert AuditEntry.objects.filter(action="peer.change").exists()
    assert not Alarm.objects.filter(cleared_at=None).exists()


@pytest.mark.parametrize(
    "fields",
    [{"domain": "localhost"}, {"domain": "10.0.0.1"}, {"domain": "c.example", "url": "ftp://x"}],
)
def test_what_can_be_no_peer_is_refused(admin_client: Client, fields: dict[str, str]) -> None:
    answer = admin_client.post(ADD, {"url": "", "hosts": "", **fields})
    assert answer.status_code == 200, "the form again, with what is wrong"
    assert not Peer.objects.exists()


def test_who_goes_back_chooses_a_stub_or_is_told_that_there_is_none(
    admin_client: Client, peer: Peer
) -> None:
    assert "1" * 12 in act(admin_client, "go_back", peer)
    peer.stubs.all().delete()
    assert "b.example has offered no stub yet." in act(admin_client, "go_back", peer)
