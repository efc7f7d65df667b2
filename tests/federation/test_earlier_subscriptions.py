"""What was subscribed here before its domain was a peer is subscribed there once it is one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from msgnode.federation import observers
from msgnode.models import Session, Subscription
from tests.client import Client, code

from .nodes import A, B, TwoNodes, come, subscribe
from .sandboxes import needs_deno
from .test_observers import gap, until_subscribed, was_told_of_a_gap

MANY = 450
"""Addresses of one observer: several batches."""


@pytest.mark.django_db
def test_the_addresses_of_a_domain_are_found_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observers, "_PART", 3)
    session = Session.objects.create(runtime_url="runtime://a.example/1", token_hash="1")
    of_b = [f"comm://{B}/1/changes", "COMM://B.Example/2/status", f"x://{B}/3/children/c"]
    others = [
        f"comm://not{B}/1/changes",
        f"comm://{B}:8443/1/changes",
        f"comm://{B}.c.example/1/changes",
        f"comm://c.example/{B}/changes",
        f"comm://{B}/1",
    ]
    for address in (others[0], of_b[0], *others[1:], *of_b[1:]):
        Subscription.objects.create(session=session, address=address)
    found, parts, after = [], 0, 0
    while True:
        some, after = observers.observed_rows(B, after)
        found += some
        parts += 1
        if not after:
            break
    assert found == of_b
    assert parts == 3


@pytest.fixture
def nodes(tmp_path: Path, template: Path) -> Iterator[TwoNodes]:
    two = TwoNodes(tmp_path / "nodes", template, SANDBOX_SILENCE_SECONDS=12)
    two.start()
    try:
        yield two
    finally:
        two.kill()


@needs_deno
@pytest.mark.asyncio
@pytest.mark.long
async def test_what_was_subscribed_while_the_domain_was_no_peer_is_found_after_a_restart_too(
    nodes: TwoNodes,
) -> None:
    """And nobody else is told of a gap; what nobody observes any more is not subscribed."""
    await asyncio.to_thread(nodes.introduce)
    await asyncio.to_thread(nodes.a.manage, "peers", "pause", B)
    await asyncio.to_thread(nodes.wait, lambda peer: peer["state"] == "stopped")
    many = [f"comm://{B}/many{number}/changes" for number in range(MANY)]
    observer = await come(nodes.a, A, "observer-many")
    other = await come(nodes.a, A, "observer-none")
    sm = f"domain://msg-node.{A}/sm"
    assert code(await observer.ask("subscribe", sm, {"resources": many})) == 200
    left = f"comm://{B}/left/changes"
    assert code(await subscribe(other, A, left)) == 200
    assert code(await other.ask("unsubscribe", sm, {"resources": [left]})) == 200
    nodes.a.kill()
    await asyncio.to_thread(nodes.a.start)
    again = await Client(f"ws://127.0.0.1:{nodes.a.port}/ws").connect()
    assert code(await again.reopen(observer.runtime_url, observer.token)) == 200
    bystander = await come(nodes.a, A, "bystander")
    await asyncio.to_thread(nodes.a.manage, "peers", "resume", B)
    await gap(again)
    for address in (many[0], many[-1]):
        await until_subscribed(nodes.b, address, 1)
    await until_subscribed(nodes.b, left, 0)
    assert not was_told_of_a_gap(bystander)
