"""Peers over REST: the same rights, the same decisions, and the same words as in the console."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from msgnode.console.roles import OPERATOR, VIEWER
from msgnode.federation import store
from msgnode.federation.descriptor import FoundStub
from msgnode.models import AuditEntry, ControlMessage, Peer, PeerSubscription

from .accounts import as_role

B = "b.example:8443"
PEERS = "/api/v1/peers/"
PEER = f"{PEERS}{B}/"
FOUND = FoundStub("one", "1" * 64, {"url": "wss://b.example/ws"}, "1")

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator() -> Client:
    return as_role(OPERATOR)


@pytest.fixture
def peer() -> Peer:
    store.note_found(B, FOUND, store.NO_PLACE, is_open=False)
    return Peer.objects.get()


def post(client: Client, path: str, **body: Any) -> Any:
    return client.post(path, body, content_type="application/json")


def test_an_operator_adds_looks_approves_and_removes(operator: Client) -> None:
    added = post(operator, PEERS, domain=" B.example:8443 ", url="https://node.b.example")
    assert added.status_code == 201, added.content
    assert added.json() == operator.get(PEER).json()
    assert post(operator, f"{PEER}approve/").status_code == 409, "no stub was found yet"
    assert ControlMessage.objects.filter(kind=store.CHANGED).exists()
    store.note_found(B, FOUND, store.read()[0].place, is_open=False)
    wrong = post(operator, f"{PEER}approve/", digest="2")
    assert wrong.status_code == 409
    assert FOUND.digest in wrong.json()["detail"]
    approved = post(operator, f"{PEER}approve/", digest="11")
    assert approved.status_code == 200
    assert approved.json()["decision"] == "approved"
    assert approved.json()["approved_by"] == OPERATOR
    PeerSubscription.objects.create(peer=Peer.objects.get(), address=f"comm://{B}/1/changes")
    (listed,) = operator.get(PEERS).json()["results"]
    assert listed == operator.get(PEER).json()
    assert listed["subscriptions"] == 1
    assert AuditEntry.objects.filter(action="peer.change").exists()
    assert operator.delete(PEER).status_code == 204
    assert operator.get(PEER).status_code == 404


@pytest.mark.parametrize(
    ("action", "decision"), [("pause", "paused"), ("block", "blocked"), ("resume", "approved")]
)
def test_a_decision_holds_for_the_workers(
    operator: Client, peer: Peer, action: str, decision: str
) -> None:
    store.approve(peer, "Eve")
    ControlMessage.objects.all().delete()
    assert post(operator, f"{PEER}{action}/").json()["decision"] == decision
    peer.refresh_from_db()
    assert peer.decision == decision
    assert ControlMessage.objects.filter(kind=store.CHANGED).exists()


def test_what_is_not_approved_neither_goes_on_nor_begins_anew(operator: Client, peer: Peer) -> None:
    for action in ("resume", "restart"):
        refused = post(operator, f"{PEER}{action}/")
        assert refused.status_code == 409
        assert refused["Content-Type"] == "application/problem+json"
        assert refused.json()["type"] == "/problems/errors/conflict"
        assert B in refused.json()["detail"]
    store.approve(peer, "Eve")
    assert post(operator, f"{PEER}restart/").status_code == 200
    sent = ControlMessage.objects.filter(kind=store.RESTART).get()
    assert sent.payload == {"domain": B}


def test_another_url_has_the_stub_be_looked_for_there(operator: Client, peer: Peer) -> None:
    body = {"url": "https://other.b.example"}
    said = operator.patch(PEER, body, content_type="application/json")
    assert said.json()["looked_at"] is None
    store.note_found(B, FOUND, store.read()[0].place, is_open=False)
    assert post(operator, f"{PEER}look/").json()["looked_at"] is None
    renamed = operator.patch(PEER, {"domain": "c.example"}, content_type="application/json")
    assert renamed.status_code == 400


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "domain"),
        ({"domain": "http://x y"}, "domain"),
        ({"domain": "10.0.0.1"}, "domain"),
        ({"domain": B}, "domain"),
        ({"domain": B.upper()}, "domain"),
        ({"domain": "c.example", "url": "ftp://x"}, "url"),
    ],
)
def test_what_cannot_be_a_peer_is_said_at_its_field(
    operator: Client, peer: Peer, body: dict[str, Any], field: str
) -> None:
    refused = post(operator, PEERS, **body)
    assert refused.status_code == 400
    assert refused["Content-Type"] == "application/problem+json"
    assert field in refused.json()["errors"]
    assert Peer.objects.count() == 1


def test_the_kind_of_a_peer_is_guessed_from_its_stub_until_it_is_set(
    operator: Client, peer: Peer
) -> None:
    def kinds(answer: Any) -> tuple[str, str]:
        return answer.json()["kind"], answer.json()["seems"]

    assert kinds(operator.get(PEER)) == ("", "unknown")
    guessed = replace(FOUND, kind="vertx")
    store.note_found(peer.domain, guessed, (peer.url, frozenset(), peer.keys), is_open=False)
    assert kinds(operator.get(PEER)) == ("", "vertx")
    assert store.read()[0].kind == "vertx"
    changed = operator.patch(PEER, {"kind": "nodejs"}, content_type="application/json")
    assert kinds(changed) == ("nodejs", "nodejs")
    assert (store.read()[0].kind, store.read()[0].has_visitors) == ("nodejs", True)
    operator.patch(PEER, {"visitors": "refused"}, content_type="application/json")
    assert not store.read()[0].has_visitors
    before = store.read()[0]
    assert before.messages_per_second == 2_000
    operator.patch(PEER, {"messages_per_second": 5_000}, content_type="application/json")
    assert store.read()[0].messages_per_second == 5_000
    assert not before.has_place_of(store.read()[0]), "it begins anew, at that rate"
    before = store.read()[0]
    operator.patch(PEER, {"vouches": True}, content_type="application/json")
    assert store.read()[0].vouches
    assert not before.has_place_of(store.read()[0])
    refused = operator.patch(PEER, {"messages_per_second": 0}, content_type="application/json")
    assert refused.status_code == 400
    refused = operator.patch(PEER, {"kind": "xmpp"}, content_type="application/json")
    assert refused.status_code == 400


@pytest.mark.parametrize("body", [{"decision": "blocked"}, {"hostz": "b.example"}])
def test_what_cannot_be_set_is_refused_and_not_passed_over(
    operator: Client, peer: Peer, body: dict[str, str]
) -> None:
    (name,) = body
    changed = operator.patch(PEER, body, content_type="application/json")
    added = post(operator, PEERS, domain="c.example", **body)
    for refused in (changed, added):
        assert refused.status_code == 400
        assert (
            "domain, hosts, keys, kind, messages_per_second, url, visitors, vouches"
            in refused.json()["errors"][name][0]
        )
    assert Peer.objects.get() == peer


def test_a_viewer_reads_and_decides_nothing(peer: Peer) -> None:
    viewer = as_role(VIEWER)
    assert viewer.get(PEERS).status_code == viewer.get(PEER).status_code == 200
    assert post(viewer, PEERS, domain="c.example").status_code == 403
    assert viewer.delete(PEER).status_code == 403
    for action in ("approve", "pause", "resume", "block", "restart", "look"):
        assert post(viewer, f"{PEER}{action}/").status_code == 403
    assert Client().get(PEERS).status_code == 401
    peer.refresh_from_db()
    assert peer.decision == Peer.Decision.PENDING


def test_the_openapi_document_has_every_action() -> None:
    paths = as_role(VIEWER).get("/api/schema?format=json").json()["paths"]
    told = {path.removeprefix("/api/v1/peers/") for path in paths if "/peers/" in path}
    actions = {f"{{domain}}/{each}/" for each in
               ("approve", "pause", "resume", "block", "restart", "look",
                "queue", "queue/retry", "queue/discard", "where", "stubs")}  # fmt: skip
    assert told == {"", "{domain}/", *actions}
