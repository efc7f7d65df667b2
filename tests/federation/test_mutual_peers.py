"""Two real nodes that are each other's peers: both speak for their domains, by whichever way.

One of them is two workers: b is served by the first, and has its session at the other. Beside them
a forger, who claims to be one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.client import Client, code
from tests.node import Node

from .nodes import SECONDS, A, B, TwoWorkersAndB, come, subscribe
from .sandboxes import needs_deno

pytestmark = [
    needs_deno,
    pytest.mark.asyncio,
    pytest.mark.long,
    pytest.mark.usefixtures("sessions_end"),
    pytest.mark.timeout(300),  # five nodes start, one command after the other
]


class MutualPeers(TwoWorkersAndB):
    """b has approved a's stub, too, after a's node had come to it as a visitor."""

    def introduce(self) -> None:
        super().introduce()
        self.other.start()
        at = f"http://127.0.0.1:{self.other.port}"
        self.b.manage("peers", "add", A, "--url", at, "--kind", "unknown")  # by stubs: no link
        self.wait(lambda peer: peer["found_digest"], self.b, A)
        self.b.manage("peers", "approve", A)
        self.wait_live()
        self.wait(lambda peer: peer["state"] == "live", self.b, A)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[MutualPeers]:
    with MutualPeers(tmp_path_factory.mktemp("mutual"), template).running() as two:
        yield two


async def two_runtimes(
    nodes: MutualPeers, name: str, at: str = "a"
) -> tuple[Client, str, Client, str]:
    """A runtime of each domain, and an address that each listens to; a's at this worker."""
    ours, theirs = f"hyperty://{A}/{name}", f"hyperty://{B}/{name}"
    here, there = await come(getattr(nodes, at), A, name), await come(nodes.b, B, name)
    assert code(await subscribe(here, A, ours)) == 200
    assert code(await subscribe(there, B, theirs)) == 200
    return here, ours, there, theirs


async def asked(by: Client, as_: str, of: Client, address: str, times: int = 3) -> None:
    """What one asks the other answers, once each."""
    for number in range(times):
        await by.send("read", address, {"value": number}, id=f"{as_} {number}", sender=as_)
        request = await of.expect(type="read", to=address, sender=as_)
        body = {"code": 200, "value": request["body"]["value"]}
        await of.send("response", as_, body, id=request["id"], sender=address)
        answer = await by.answer(f"{as_} {number}")
        assert (code(answer), answer["body"]["value"]) == (200, number), answer
        assert answer["from"] == address


@pytest.mark.parametrize("at", ["a", "other"])
@pytest.mark.parametrize("first", ["a", "b"])
async def test_mutual_peers_ask_each_other_whoever_has_asked_first(
    nodes: MutualPeers, first: str, at: str
) -> None:
    here, ours, there, theirs = await two_runtimes(nodes, f"first-{first}-{at}", at)
    ways = [(here, ours, there, theirs), (there, theirs, here, ours)]
    for by, as_, of, address in (ways if first == "a" else ways[::-1]) * 2:
        await asked(by, as_, of, address)


@pytest.mark.parametrize("at", ["a", "other"])
async def test_a_request_is_answered_on_the_way_it_came_whatever_was_said_meanwhile(
    nodes: MutualPeers, at: str
) -> None:
    """b's node hears the answer where it has asked, so that nothing is left unanswered there."""
    here, ours, there, theirs = await two_runtimes(nodes, f"crossed-{at}", at)
    other, also, third, elsewhere = await two_runtimes(nodes, f"crossed-too-{at}", at)
    await other.send("execute", elsewhere, {"value": "hello"}, sender=also)
    await third.expect(type="execute", sender=also)  # b knows it now from a's node itself
    await there.send("read", ours, id="early", sender=theirs)  # through a's stub
    request = await here.expect(type="read", sender=theirs)
    await there.send("execute", also, {"value": "hello"}, sender=theirs)  # on the other way
    await other.expect(type="execute", sender=theirs)
    await here.send("response", theirs, {"code": 200, "value": 7}, id=request["id"], sender=ours)
    assert (await there.answer("early"))["body"]["value"] == 7
    await asked(here, ours, there, theirs)
    await asked(there, theirs, here, ours)


@pytest.mark.parametrize("at", [A, B])
async def test_mutual_peers_observe_each_others_objects(nodes: MutualPeers, at: str) -> None:
    here, there = await come(nodes.a, A, f"object-{at}"), await come(nodes.b, B, f"object-{at}")
    reporter, observer, away = (here, there, B) if at == A else (there, here, A)
    thing = f"comm://{at}/mutual"
    assert code(await subscribe(reporter, at, f"{thing}/subscription")) == 200
    assert code(await subscribe(observer, away, f"{thing}/changes")) == 200
    for number in range(3):
        await reporter.send("update", f"{thing}/changes", {"value": number}, sender=thing)
        update = await observer.expect(type="update", to=f"{thing}/changes")
        assert update["body"]["value"] == number


async def test_a_visitor_of_a_mutual_peers_domain_speaks_for_itself_alone(
    nodes: MutualPeers,
) -> None:
    for node, home, away in ((nodes.a, A, B), (nodes.b, B, A)):
        for name in ("poser", "mn-0123456789abcdef", "messaging-node-0"):
            poser = await come(node, away, name)
            answer = await poser.ask("read", f"hyperty://{home}/x", sender=f"hyperty://{away}/bob")
            assert code(answer) == 403, name


@pytest.mark.parametrize("said", [f"{A} forged", f"{A} {'0' * 64}", A, f"{A} "])
async def test_who_says_that_it_is_the_node_of_a_peer_and_is_not_is_refused(
    nodes: MutualPeers, said: str
) -> None:
    assert await refused(nodes.b, said) == 403


async def test_a_header_of_a_domain_that_is_no_peer_makes_nobody_its_node(
    nodes: MutualPeers,
) -> None:
    headers = {"Messaging-Node": "c.example secret"}
    async with connect(f"ws://127.0.0.1:{nodes.b.port}/ws", additional_headers=headers):
        pass


async def test_while_a_peer_is_blocked_its_node_does_not_come_as_a_visitor(
    nodes: MutualPeers,
) -> None:
    here, ours, there, theirs = await two_runtimes(nodes, "blocked")
    await asked(here, ours, there, theirs)
    await asyncio.to_thread(nodes.b.manage, "peers", "block", A)
    try:
        await asyncio.to_thread(nodes.wait, lambda peer: peer["state"] != "live")
        assert await refused(nodes.b, f"{A} forged") == 403
        assert code(await there.ask("read", ours, sender=theirs)) == 403
    finally:
        await asyncio.to_thread(nodes.b.manage, "peers", "resume", A)
        await asyncio.to_thread(nodes.wait_live)
    await asyncio.to_thread(nodes.wait, lambda peer: peer["state"] == "live", nodes.b, A)
    await asked(here, ours, there, theirs)
    await asked(there, theirs, here, ours)


async def refused(node: Node, said: str) -> int:
    """With which code an upgrade is refused that says this; 0 if it is not.

    Who comes too often, as tests do one after the other, is asked to come later (429), and does.
    """
    headers = {"Messaging-Node": said}
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                async with connect(f"ws://127.0.0.1:{node.port}/ws", additional_headers=headers):
                    return 0
            except InvalidStatus as error:
                if error.response.status_code != 429:
                    return error.response.status_code
                await asyncio.sleep(0.2)
