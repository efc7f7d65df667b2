"""Two real nodes: what is observed of the other domain is subscribed there once, gaps are told."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests import waiting
from tests.client import Client, Frame, code
from tests.node import Node

from .nodes import A, B, TwoNodes, come, subscribe, subscribed_at
from .sandboxes import needs_deno

pytestmark = [
    needs_deno,
    pytest.mark.asyncio,
    pytest.mark.long,
    pytest.mark.usefixtures("sessions_end"),
]

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[TwoNodes]:
    two = TwoNodes(
        tmp_path_factory.mktemp("observers"),
        template,
        SANDBOX_SILENCE_SECONDS=12,
    )
    with two.running():
        yield two


async def reports(nodes: TwoNodes, name: str) -> tuple[Client, str]:
    """A runtime of b with an object, and the address of its changes."""
    await asyncio.to_thread(nodes.wait_live)
    reporter = await come(nodes.b, B, f"reporter-{name}")
    assert code(await subscribe(reporter, B, f"comm://{B}/{name}/subscription")) == 200
    return reporter, f"comm://{B}/{name}/changes"


async def unsubscribe(client: Client, domain: str, address: str) -> Frame:
    sm = f"domain://msg-node.{domain}/sm"
    return await client.ask("unsubscribe", sm, {"resources": [address]})


async def tell(reporter: Client, changes: str, value: object) -> None:
    await reporter.send(
        "update", changes, {"value": value}, sender=changes.removesuffix("/changes")
    )


async def hears(observer: Client, changes: str, value: object) -> None:
    """Wait for this update, and find that nothing else of the object came before it."""
    update = await observer.expect(type="update", to=changes)
    assert update["body"]["value"] == value


async def gap(observer: Client) -> None:
    """Wait until the observer is told of a gap."""
    while True:
        said = await observer.expect(type="update", to=f"{observer.runtime_url}/status")
        if said["body"]["value"] == "gap":
            return


def was_told_of_a_gap(observer: Client) -> bool:
    return any(
        each["to"] == f"{observer.runtime_url}/status" and each["body"].get("value") == "gap"
        for each in observer.inbox
    )


async def until_subscribed(node: Node, address: str, count: int) -> None:
    await asyncio.to_thread(
        waiting.until, lambda: subscribed_at(node, address) == count, 60, node.log
    )


async def test_case_47_several_observers_are_one_subscription_there_until_the_last_is_gone(
    nodes: TwoNodes,
) -> None:
    reporter, changes = await reports(nodes, "room")
    observers = [await come(nodes.a, A, f"observer{number}") for number in (1, 2)]
    for one in observers:
        assert code(await subscribe(one, A, changes)) == 200
        assert subscribed_at(nodes.b, changes) == 1
    await tell(reporter, changes, 1)
    for one in observers:
        await hears(one, changes, 1)
    first, last = observers
    for domain in (B, A):  # what one asks the other node itself does not end it for all
        assert code(await unsubscribe(first, domain, changes)) == 200
    await tell(reporter, changes, 2)
    await hears(last, changes, 2)
    assert code(await unsubscribe(last, A, changes)) == 200
    await until_subscribed(nodes.b, changes, 0)


async def test_case_47_what_a_runtime_asks_the_other_nodes_manager_is_its_own_subscription(
    nodes: TwoNodes,
) -> None:
    """As runtimes do whose node bridges them; in whatever case the domain is written."""
    reporter, changes = await reports(nodes, "bridged")
    bridged, other = [await come(nodes.a, A, f"bridged{number}") for number in (1, 2)]
    assert code(await subscribe(other, A, changes)) == 200
    for spelling in (B, B.upper(), B.title()):
        answer = await subscribe(bridged, spelling, changes)
        assert (code(answer), answer["from"]) == (200, f"domain://msg-node.{spelling}/sm")
        await tell(reporter, changes, spelling)
        for one in (bridged, other):
            await hears(one, changes, spelling)
        assert code(await unsubscribe(bridged, spelling, changes)) == 200
        await tell(reporter, changes, f"no more of {spelling}")
        await hears(other, changes, f"no more of {spelling}")
    assert code(await subscribe(bridged, B, f"comm://{A}/ours/changes")) == 403


async def test_case_49_after_a_new_session_all_is_subscribed_again_and_there_is_a_gap(
    nodes: TwoNodes,
) -> None:
    reporter, changes = await reports(nodes, "lost")
    observer = await come(nodes.a, A, "observer-lost")
    assert code(await subscribe(observer, A, changes)) == 200
    nodes.b.manage("shell", "-c", _FORGET)
    await gap(observer)
    await until_subscribed(nodes.b, changes, 1)
    await tell(reporter, changes, 7)
    await hears(observer, changes, 7)


@pytest.mark.parametrize("how", ["restarts", "freezes"])
async def test_case_50_after_a_session_that_went_on_there_is_no_gap(
    nodes: TwoNodes, how: str
) -> None:
    name = f"{how}-{next(_NUMBERS)}"
    reporter, changes = await reports(nodes, f"on-{name}")
    observer = await come(nodes.a, A, f"observer-{name}")
    assert code(await subscribe(observer, A, changes)) == 200
    if how == "restarts":
        nodes.b.terminate()
        await asyncio.to_thread(nodes.b.status)
        await asyncio.to_thread(nodes.b.start)
        knocks = await come(nodes.a, A, "knocks")
        asking = partial(knocks.ask, "read", f"hyperty://{B}/nobody")
        await waiting.seen(asking, lambda answer: code(answer) == 404, 90)  # it is on its way back
        reporter = await come(nodes.b, B, "reporter-again")
    else:
        os.kill(nodes.b.pid, signal.SIGSTOP)
        await asyncio.sleep(3)
        os.kill(nodes.b.pid, signal.SIGCONT)
    await tell(reporter, changes, 9)
    await hears(observer, changes, 9)
    assert not was_told_of_a_gap(observer)


_FORGET = f"""
from msgnode.console.operator_actions import end_sessions
from msgnode.models import Session
of_a = Session.objects.filter(runtime_url__startswith="runtime://{A}/", state="open")
assert end_sessions(of_a, "test", "test", may_return=True)
"""
"""What an operator of b does: the session of a ends."""
