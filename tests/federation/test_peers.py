"""Peers as operators have them: rows, decisions, claims, the command, and what senders are told."""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from joserfc.jwk import OKPKey

from msgnode import models
from msgnode.bus.table import RoutingTable
from msgnode.checks import check_node
from msgnode.core.errors import NodeError
from msgnode.federation import store
from msgnode.federation.descriptor import FoundStub
from msgnode.federation.discovery import KnownPeers
from msgnode.federation.monitoring import PeerAlarms
from msgnode.federation.observers import Observers
from msgnode.federation.service import Federation, FederationSettings, ServingWorker
from msgnode.models import LegacyNetwork, Peer
from msgnode.sandbox import process as sandbox
from tests.fakes import AlarmCalls

B = "b.example"
FOUND = FoundStub("one", "1" * 64, {"url": "wss://b.example/ws"}, "1")
OTHER = FoundStub("two", "2" * 64, {"url": "wss://b.example/ws"}, "2")

pytestmark = pytest.mark.django_db


def test_case_13_a_stub_that_was_found_waits_until_it_is_approved() -> None:
    assert store.note_found(B, FOUND, store.NO_PLACE, is_open=False) == "new"
    (row,) = store.read()
    assert not row.is_served
    assert store.approve(Peer.objects.get(), "Eve") == ""
    (row,) = store.read()
    assert row.is_served
    assert row.approved_digest == FOUND.digest
    assert store.source_of(row.pk, row.approved_digest) == ("one", FOUND.configuration)


def test_case_15_another_stub_of_an_approved_peer_does_not_run() -> None:
    store.note_found(B, FOUND, store.NO_PLACE, is_open=False)
    store.approve(Peer.objects.get(), "Eve")
    assert store.note_found(B, OTHER, store.NO_PLACE, is_open=False) == "changed"
    (row,) = store.read()
    assert row.approved_digest == FOUND.digest
    assert store.source_of(row.pk, row.approved_digest) == ("one", FOUND.configuration)
    store.approve(Peer.objects.get(), "Eve")
    assert store.read()[0].approved_digest == OTHER.digest


def test_case_15_an_operator_goes_back_to_an_earlier_stub_by_its_digest() -> None:
    for each in (FOUND, OTHER):
        store.note_found(B, each, store.NO_PLACE, is_open=False)
        store.approve(Peer.objects.get(), "Eve")
    assert [each["digest"] for each in store.stubs_of(Peer.objects.get())] == [
        OTHER.digest,
        FOUND.digest,
    ]
    assert "no stub 33 before" in store.approve(Peer.objects.get(), "Eve", "33")
    assert store.approve(Peer.objects.get(), "Eve", "11") == ""
    assert store.read()[0].approved_digest == FOUND.digest
    assert Peer.objects.get().found_digest == OTHER.digest, "what the domain offers is another"


def test_a_digest_that_several_stubs_begin_with_names_none() -> None:
    for digest in ("12", "13", "2"):
        found = replace(FOUND, digest=digest.ljust(64, "0"))
        store.note_found(B, found, store.NO_PLACE, is_open=False)
    assert "several stubs" in store.approve(Peer.objects.get(), "Eve", "1")
    assert not store.read()[0].is_served


def _public(kid: str) -> str:
    key = OKPKey.generate_key("Ed25519", {"kid": kid})
    return json.dumps({"keys": [key.as_dict(private=False)]})


def test_nobody_goes_back_to_a_stub_that_was_signed_with_a_key_of_before() -> None:
    old, now = (_public(kid) for kid in ("old", "now"))
    for key, found in ((old, FOUND), (now, OTHER)):
        Peer.objects.update_or_create(domain=B, defaults={"keys": key, "looked_at": None})
        signed = replace(found, signed_by=json.loads(key)["keys"][0]["kid"])
        store.note_found(B, signed, store.read()[0].place, is_open=False)
        assert store.approve(Peer.objects.get(), "Eve") == ""
    assert "not signed" in store.approve(Peer.objects.get(), "Eve", FOUND.digest)
    assert store.read()[0].approved_digest == OTHER.digest


def test_case_15_a_stub_that_cannot_be_loaded_gives_its_place_back() -> None:
    for each in (FOUND, OTHER):
        store.note_found(B, each, store.NO_PLACE, is_open=False)
        store.approve(Peer.objects.get(), "Eve")
    (row,) = store.read()
    store.take_back(row, FOUND.digest)
    assert store.read()[0].approved_digest == FOUND.digest
    store.take_back(row, "0" * 64)
    assert store.read()[0].approved_digest == FOUND.digest, "an operator has decided meanwhile"


def test_in_mode_open_a_stub_runs_when_it_was_found() -> None:
    assert store.note_found(B, FOUND, store.NO_PLACE, is_open=True) == ""
    assert store.read()[0].is_served
    store.decide(Peer.objects.get(), Peer.Decision.BLOCKED)
    store.note_found(B, OTHER, store.NO_PLACE, is_open=True)
    assert not store.read()[0].is_served, "what a person has decided stays"


def test_a_peer_without_a_stub_cannot_be_approved() -> None:
    peer = Peer.objects.create(domain=B)
    store.note_not_found(B, "no answer", store.NO_PLACE)
    peer.refresh_from_db()
    assert "no answer" in store.approve(peer, "Eve")


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("changed", ["url", "hosts", "keys"])
def test_what_was_looked_for_elsewhere_or_with_other_keys_is_not_noted(
    changed: str, is_open: bool
) -> None:
    """The row has changed while the stub was looked for, and is looked at again."""
    Peer.objects.create(domain=B, **{changed: "x"})
    assert store.note_found(B, FOUND, store.NO_PLACE, is_open=is_open) == ""
    store.note_not_found(B, "no answer", store.NO_PLACE)
    (row,) = store.read()
    assert row.needs_look
    assert (row.approved_digest, row.discovery) == ("", "")
    assert not models.PeerStub.objects.exists()
    store.note_found(B, FOUND, row.place, is_open=is_open)
    assert not store.read()[0].needs_look


def test_a_peer_that_was_removed_while_it_was_looked_for_stays_so() -> None:
    peer = Peer.objects.create(domain=B, keys="x")
    place = store.read()[0].place
    peer.delete()
    store.note_not_found(B, "no answer", place)
    assert store.note_found(B, FOUND, place, is_open=True) == ""
    assert not Peer.objects.exists()


def test_case_79_rows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_ROWS", 2)
    for number in range(4):
        store.note_found(f"d{number}.example", FOUND, store.NO_PLACE, is_open=False)
    assert Peer.objects.count() == 2


def test_case_61_a_peer_is_served_by_one_worker_and_by_another_when_that_is_gone() -> None:
    for epoch in ("one", "other"):
        models.Worker.objects.create(epoch=epoch, name=epoch, host="h", pid=1, state="ready")
    store.note_found(B, FOUND, store.NO_PLACE, is_open=True)
    rows = store.read()
    assert store.take_claims("one", rows, 32) == {rows[0].pk}
    assert store.take_claims("other", rows, 32) == set()
    models.Worker.objects.filter(epoch="one").delete()
    assert store.take_claims("other", rows, 32) == {rows[0].pk}
    assert store.unserved(rows) == set()
    assert store.take_claims("other", rows, 0) == set(), "as many as a worker may serve"
    assert store.unserved(rows) == {rows[0].pk}


def test_a_peer_that_is_looked_for_takes_no_other_peers_place() -> None:
    models.Worker.objects.create(epoch="one", name="one", host="h", pid=1, state="ready")
    store.note_found(B, FOUND, store.NO_PLACE, is_open=True)
    added = Peer.objects.create(domain="a.example")
    rows = store.read()
    assert [row.domain for row in rows] == ["a.example", B]
    assert store.take_claims("one", rows, 1) == {row.pk for row in rows}
    assert store.take_claims("one", rows, 0) == {added.pk}


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> Federation:
    """A worker that serves two peers which were blocked since."""
    monkeypatch.setattr(store, "note_state", lambda *_: None)
    for domain in (B, "c.example"):
        store.note_found(domain, FOUND, store.NO_PLACE, is_open=True)
    one, rows = federation(), store.read()
    one._peers.use([])
    one._holds_lease = lambda: False
    one._writer = Inline()
    one._alarms = PeerAlarms(lambda *_: None, lambda *_: None)
    both = asyncio.Barrier(2)

    async def stop() -> None:
        await both.wait()

    for row in rows:
        link: Any = SimpleNamespace(
            peer=SimpleNamespace(domain=row.domain), stop=stop,
            exchange=SimpleNamespace(discard_for_good=lambda: None),
        )  # fmt: skip
        one.links[row.pk], one._served[row.pk], one._tasks[row.pk] = link, row, link
    return one


class Inline:
    """A writer that writes at once."""

    async def submit(self, *changes: Any) -> None:
        for each in changes:
            each.action()


@pytest.mark.asyncio
async def test_a_peer_that_takes_long_to_end_holds_up_the_end_of_no_other(
    ending: Federation,
) -> None:
    async with asyncio.timeout(10):
        await ending._serve()
    assert ending.links == {}


# --- what senders are told ------------------------------------------------------------------------


def federation(mode: str = "listed") -> Federation:
    nothing: Any = None
    settings = FederationSettings("a.example", 32, nothing, nothing)
    worker = ServingWorker("epoch", RoutingTable(), nothing, lambda: True, AlarmCalls())
    peers = KnownPeers("a.example", mode, nothing, nothing, nothing)
    observers = Observers(RoutingTable(), nothing, nothing, True, 30.0)
    one = Federation(settings, worker, peers, nothing, nothing, observers, nothing, nothing)
    one._use(store.read())
    return one


def told(one: Federation, to: str = f"hyperty://{B}/1") -> tuple[int, str]:
    error = one._peers.refusal(to)
    assert isinstance(error, NodeError)
    return error.code, error.description


def test_case_12_a_domain_that_is_not_listed_is_refused_by_name() -> None:
    assert told(federation()) == (403, f"This node does not exchange messages with {B}.")


def test_nothing_is_said_of_this_domain_and_of_what_is_of_none() -> None:
    one = federation()
    for to in ("hyperty://a.example/1", "mn:/x", "runtime:/alice", "global://x/1"):
        assert one._peers.refusal(to) is None


@pytest.mark.parametrize(
    ("decision", "code", "word"),
    [
        ("pending", 503, "waits for the operator"),
        ("paused", 503, "paused"),
        ("blocked", 403, "no messages"),
    ],
)
def test_a_sender_is_told_what_was_decided(decision: str, code: int, word: str) -> None:
    store.note_found(B, FOUND, store.NO_PLACE, is_open=False)
    store.decide(Peer.objects.get(), decision)
    found, text = told(federation(), f"domain://msg-node.{B}/sm")
    assert found == code
    assert word in text


def test_an_approved_peer_is_routed_to_and_a_blocked_one_is_not() -> None:
    store.note_found(B, FOUND, store.NO_PLACE, is_open=False)
    store.approve(Peer.objects.get(), "Eve")
    one = federation()
    assert list(one._table.peers) == [B]
    store.decide(Peer.objects.get(), Peer.Decision.BLOCKED)
    one._use(store.read())
    assert one._table.peers == {}


def test_case_56_a_legacy_network_is_routed_to_without_deno_and_known_to_policies_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox, "find_deno", lambda: "")
    LegacyNetwork.objects.create(
        domain=B, host="127.0.0.1", component=f"gw.{B}", decision=Peer.Decision.APPROVED
    )
    one = federation()
    assert list(one._table.peers) == [B]
    assert one._table.legacy == {B}
    assert told(one, f"xmpp://{B}/bob") == (503, f"{B} is not connected yet: try again.")
    store.decide(Peer.objects.get(), Peer.Decision.BLOCKED)
    assert told(federation(), f"xmpp://{B}/bob")[0] == 403
    assert store.decide(Peer.objects.get(), Peer.Decision.APPROVED) == ""


# --- the command and the checks -------------------------------------------------------------------


def command(*words: str) -> str:
    out = io.StringIO()
    call_command("peers", *words, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_the_command_adds_lists_and_decides() -> None:
    command("add", B, "--url", "http://127.0.0.1:8002")
    with pytest.raises(CommandError, match="no protostub was found yet"):
        command("approve", B)
    assert command("stubs", B).startswith(f"{B} has offered no stub yet")
    store.note_found(B, FOUND, store.read()[0].place, is_open=False)
    assert command("stubs", B).startswith(FOUND.digest)
    with pytest.raises(CommandError, match=FOUND.digest):
        command("approve", B, "--digest", "22")
    command("approve", B, "--digest", "11")
    assert Peer.objects.get().decision == Peer.Decision.APPROVED
    out = io.StringIO()
    with pytest.raises(CommandError, match=B):
        call_command("peers", "--json", stdout=out, stderr=io.StringIO())
    assert json.loads(out.getvalue())[0]["approved_by"] == "command line"
    store.note_state(Peer.objects.get().pk, "live", "")
    assert "live" in command()
    command("block", B)
    assert Peer.objects.get().decision == Peer.Decision.BLOCKED
    command("remove", B)
    assert command() == ""


@pytest.mark.parametrize(
    "words",
    [("add",), ("add", "localhost"), ("add", B, "--url", "ftp://x"), ("block", "c.example"),
     ("add", B, "--messages-per-second", "0")],
)  # fmt: skip
def test_what_the_command_cannot_do_it_says(words: tuple[str, ...]) -> None:
    with pytest.raises(CommandError) as caught:
        command(*words)
    assert caught.value.returncode == 2
    assert not Peer.objects.exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"FEDERATION": "on"}, "FEDERATION is 'on'"),
        ({"FEDERATION_NETWORKS": ["10.0.0.1/8"]}, "FEDERATION_NETWORKS"),
        ({"SANDBOX": {"BUBBLEWRAP": "yes"}}, "SANDBOX_BUBBLEWRAP"),
        ({"PEERS": {"MAX_STUBS": 0}}, "MAX_STUBS"),
    ],
)
def test_what_is_set_wrong_is_said(
    settings: Any, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], said: str
) -> None:
    monkeypatch.setattr(sandbox, "find_deno", lambda: "/usr/bin/deno")
    monkeypatch.setattr(sandbox, "can_wrap", lambda: True)
    settings.FEDERATION = "listed"
    assert [each.id for each in check_node()] == []
    for name, value in changed.items():
        if isinstance(value, dict):
            value = {**getattr(settings, name), **value}
        setattr(settings, name, value)
    (found,) = check_node()
    assert found.id == "msgnode.E022"
    assert said in found.msg


@pytest.mark.parametrize(
    ("wraps", "works", "told"),
    [
        ("auto", False, ["msgnode.W002"]),
        ("required", False, ["msgnode.E022"]),
        ("off", False, []),
        ("auto", True, []),
        ("required", True, []),
    ],
)
def test_case_32_the_check_says_what_a_machine_without_bubblewrap_means(
    settings: Any, monkeypatch: pytest.MonkeyPatch, wraps: str, works: bool, told: list[str]
) -> None:
    monkeypatch.setattr(sandbox, "find_deno", lambda: "/usr/bin/deno")
    monkeypatch.setattr(sandbox, "can_wrap", lambda: works)
    settings.FEDERATION = "listed"
    settings.SANDBOX = {**settings.SANDBOX, "BUBBLEWRAP": wraps}
    assert [each.id for each in check_node()] == told


def test_case_31_a_node_without_deno_says_which_package_is_missing(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "find_deno", lambda: "")
    assert check_node() == [], "it is switched off"
    settings.FEDERATION = "approve"
    (found,) = check_node()
    assert "messaging-node[federation]" in found.hint
    store.note_found(B, FOUND, store.NO_PLACE, is_open=True)
    one = federation("open")
    assert one.state == "deno is missing"
    code, text = told(one)
    assert code == 502
    assert "messaging-node[federation]" in text
