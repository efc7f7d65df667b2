"""When the catalogue of a peer is looked at again, and what becomes of what is found then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from msgnode.federation import store
from msgnode.federation.descriptor import FoundStub
from msgnode.models import Peer

from .catalogues import Catalogue, described

B = "b.example"
FOUND = FoundStub("one", "1" * 64, {"url": "wss://b.example/ws"}, "1")
OTHER = FoundStub("two", "2" * 64, {"url": "wss://b.example/ws"}, "2")


def looked(pause: timedelta, **fields: Any) -> bool:
    """Whether a peer that was looked for so long ago is looked for now."""
    Peer.objects.filter(domain=B).update(looked_at=timezone.now() - pause, **fields)
    return store.read()[0].needs_look


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("decision", "discovery", "pause"),
    [
        ("approved", "", store.LOOKS_EVERY),
        ("approved", "no answer", store.LOOKS_AGAIN_EVERY),
        ("pending", "no answer", store.LOOKS_AGAIN_EVERY),
    ],
)
def test_a_peer_is_looked_for_again_after_a_while(
    decision: str, discovery: str, pause: timedelta
) -> None:
    Peer.objects.create(domain=B, decision=decision, discovery=discovery)
    assert store.read()[0].needs_look, "at once"
    assert not looked(pause - timedelta(seconds=20))
    assert looked(pause)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("decision", "discovery"), [("pending", ""), ("paused", "no answer"), ("blocked", "")]
)
def test_where_a_person_has_to_act_first_nothing_is_looked_for(
    decision: str, discovery: str
) -> None:
    Peer.objects.create(domain=B, decision=decision, discovery=discovery)
    assert not looked(timedelta(days=9))
    store.look_again(Peer.objects.get())
    assert store.read()[0].needs_look


@pytest.mark.django_db
def test_another_stub_is_told_once_and_again_if_a_person_looks() -> None:
    for each in (FOUND, OTHER):
        last = store.note_found(B, each, store.NO_PLACE, is_open=False)
        if each is FOUND:
            store.approve(Peer.objects.get(), "Eve")
    assert last == "changed"
    assert store.note_found(B, OTHER, store.NO_PLACE, is_open=False) == ""
    store.look_again(Peer.objects.get())
    assert store.note_found(B, OTHER, store.NO_PLACE, is_open=False) == "changed"


@pytest.mark.django_db
def test_in_mode_open_the_way_back_to_an_earlier_stub_lasts_until_another_one_is_offered() -> None:
    for each in (FOUND, OTHER):
        store.note_found(B, each, store.NO_PLACE, is_open=True)
    assert store.approve(Peer.objects.get(), "Eve", FOUND.digest) == ""
    store.note_found(B, OTHER, store.NO_PLACE, is_open=True)
    assert store.read()[0].approved_digest == FOUND.digest
    newest = replace(OTHER, digest="3" * 64)
    store.note_found(B, newest, store.NO_PLACE, is_open=True)
    assert store.read()[0].approved_digest == newest.digest


@pytest.mark.django_db
def test_of_a_domain_that_offers_ever_another_stub_so_many_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "MAX_STUBS", 4)
    store.note_found(B, FOUND, store.NO_PLACE, is_open=False)
    store.approve(Peer.objects.get(), "Eve")
    for number in range(10):
        each = replace(OTHER, digest=f"{number:064}")
        store.note_found(B, each, store.NO_PLACE, is_open=False)
    kept = [stub["digest"] for stub in store.stubs_of(Peer.objects.get())]
    assert kept == [*(f"{number:064}" for number in (9, 8, 7)), FOUND.digest]


@pytest.mark.django_db
def test_a_domain_that_is_out_of_reach_for_a_while_takes_no_signature() -> None:
    store.note_found(B, replace(FOUND, signed_by="k"), store.NO_PLACE, is_open=False)
    store.note_found(B, replace(OTHER, signed_by="k"), store.NO_PLACE, is_open=False)
    store.note_not_found(B, "no answer", store.NO_PLACE, was_reached=False)
    signed = {each["signed_by"] for each in store.stubs_of(Peer.objects.get())}
    assert signed == {"k"}
    store.note_not_found(B, "It is not signed.", store.NO_PLACE)
    signed = {each["signed_by"] for each in store.stubs_of(Peer.objects.get())}
    assert signed == {""}


# --- a real node ----------------------------------------------------------------------------------

_URL = "ws://127.0.0.1:1/ws"
_BEFORE, _NOW = (described(f"export default class {name} {{}}", _URL) for name in "AB")


@pytest.fixture
def offered() -> dict[str, dict[str, Any]]:
    """What the catalogues offer, by peer."""
    return {"/changes": _BEFORE, "/returns": {}}


@pytest.fixture
def catalogue(offered: dict[str, dict[str, Any]]) -> Iterator[Catalogue]:
    one = Catalogue(offered)
    yield one
    one.stop()
