"""Links to nodes of each kind (field_nodes.py): both ways, and after the peer was killed.

One table has the kinds, and what their rows say that the link does for them (msgnode/federation/
kinds.py); each test below it is of all of them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from msgnode.federation import exchange, kinds
from tests.ports import free_port

from .field_nodes import (
    SM,
    FieldNode,
    NodejsNode,
    NomatrixNode,
    OurNode,
    PollingNode,
    UnknownNode,
    VertxNode,
)
from .links import OURS, THEIRS, A, B, Linked, linked
from .sandboxes import needs_deno

pytestmark = [needs_deno, pytest.mark.asyncio]

ROOM, CHANGES = f"comm://{B}/room", f"comm://{B}/room/changes"
OUR_ROOM = f"comm://{A}/room"
RUNTIME = f"runtime://{A}/alice"
NOBODY, DEAF = f"hyperty://{B}/nobody", f"hyperty://{B}/deaf"


class Kind(NamedTuple):
    """A node, and what is so with it.

    `writers`: who of a hyperty and a runtime that write there is subscribed by the link, None if
    it does so for nobody. `nobody`: what a request to nobody
    there is answered with, and by whom. `returns`: whether an address here is reached again after a
    restart of the peer before it has written again.
    """

    node: type[FieldNode]
    writers: list[str] | None
    nobody: tuple[int, str]
    returns: bool


SILENCE, LONG_SILENCE = "exchange.SILENT_SECONDS", "exchange.ASKED_SECONDS"
KINDS = {
    "vertx": Kind(VertxNode, [RUNTIME], (504, SILENCE), False),
    "nodejs": Kind(NodejsNode, [OURS, RUNTIME], (504, SILENCE), True),
    "nodejs-polling": Kind(PollingNode, [OURS, RUNTIME], (504, SILENCE), True),
    "nomatrix": Kind(NomatrixNode, [OURS, RUNTIME], (504, SILENCE), True),
    "ours": Kind(OurNode, None, (404, "the peer"), True),
    "unknown": Kind(UnknownNode, None, (504, LONG_SILENCE), False),
}


class World(NamedTuple):
    """A link to such a node, which is live; a runtime there answers with what it was asked."""

    link: Linked
    node: FieldNode
    kind: Kind

    @property
    def answers(self) -> list[Any]:
        said = self.link.node.said
        return [(each["id"], each["body"]["code"]) for each in said if each["type"] == "response"]

    async def asked(self, value: int) -> None:
        self.link.post(value)
        await self.link.until(lambda: (f"m{value}", 200) in self.answers)

    async def heard(self, **fields: Any) -> None:
        """A frame of the peer has come here."""
        said = self.link.node.said
        await self.link.until(lambda: any(fields.items() <= each.items() for each in said))

    async def writes(self, id_: str, type_: str = "update") -> None:
        """A runtime there sends something to an address here, by itself."""
        message = {"id": id_, "type": type_, "from": THEIRS, "to": OURS, "body": {}}
        await self.node.say(message)
        await self.heard(id=id_, type=type_)

    async def observes(self) -> None:
        """An object there is observed here."""
        self.link.link.subscriptions.want([CHANGES])
        await self.link.until(lambda: CHANGES in self.link.link.subscriptions.held)


def answering(node: FieldNode) -> None:
    node.runtimes[THEIRS] = lambda asked: {"code": 200, "value": asked["body"].get("value")}
    node.runtimes[DEAF] = lambda _: None


@pytest.fixture(params=list(KINDS))
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    kind = KINDS[request.param]
    node = kind.node()
    node.port = free_port()  # which is in the configuration
    answering(node)
    assert kinds.guessed([node.stub]) == node.kind
    async with linked(node.stub, node, kind=node.kind, configuration=node.configuration) as link:
        await link.live()
        yield World(link, node, kind)


async def test_a_request_and_its_response_pass_each_way(world: World) -> None:
    await world.asked(1)
    await world.writes("r1", "read")
    world.link.post(1, "response", THEIRS, code=200)
    await world.link.until(lambda: any(each["type"] == "response" for each in world.node.heard))
    frame = {"id": "r2", "type": "read", "from": RUNTIME, "to": THEIRS, "body": {}}
    world.link.link._outgoing(json.dumps(frame).encode())
    await world.heard(id="r2", type="response")
    writers = world.link.link.writers
    assert (writers.addresses if writers is not None else None) == world.kind.writers
    assert world.node.dropped == []


async def test_an_update_passes_each_way(world: World) -> None:
    await world.observes()
    change = {"id": 7, "type": "update", "from": ROOM, "to": CHANGES, "body": {"n": 1}}
    await world.node.say(change)
    await world.heard(to=CHANGES)
    world.node.runtimes[f"{OUR_ROOM}/changes"] = lambda _: None  # somebody there has subscribed it
    world.link.post(2, "update", f"{OUR_ROOM}/changes")
    heard = world.node.heard
    await world.link.until(lambda: any(each["to"] == f"{OUR_ROOM}/changes" for each in heard))


async def test_after_the_peer_was_killed_and_started_everything_is_as_before(
    world: World,
) -> None:
    await world.asked(1)
    await world.observes()
    await world.node.restart()
    await world.link.until(lambda: CHANGES in world.node.known)
    if OURS in (world.kind.writers or ()):
        await world.link.until(lambda: OURS in world.node.known)
    if not world.kind.returns:
        await world.asked(2)
    await world.writes("c2")
    await world.asked(3)


async def test_every_request_is_answered_whatever_becomes_of_the_peer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that it has, one while it is down, one to what its restart has wiped, one to nobody."""
    for name in ("SILENT_SECONDS", "LEAST_SILENT_SECONDS"):
        monkeypatch.setattr(exchange, name, 0.5)
    link, node = world.link, world.node
    link.post(1, to=DEAF)
    await link.until(lambda: any(each["to"] == DEAF for each in node.heard))
    await node.stop()
    link.post(2, to=DEAF)
    node.forget()
    node.runtimes.clear()
    await node.start()
    await link.live()
    if world.kind.nobody[1] == LONG_SILENCE:
        monkeypatch.setattr(exchange, "ASKED_SECONDS", 0.5)
    link.post(3)
    link.post(4, to=NOBODY)
    await link.until(lambda: {id_ for id_, _ in world.answers} == {"m1", "m2", "m3", "m4"})
    codes = dict(world.answers)
    assert codes["m1"] in (503, 504)
    assert codes["m2"] in (404, 503, 504)
    lost = 503  # by the session before, where polling has not noticed yet that it is gone
    assert {codes["m3"], codes["m4"]} <= {world.kind.nobody[0], lost}
    assert len(world.answers) == 4, "each once"
    assert not link.link.exchange.is_busy or world.kind.nobody[1] == SILENCE
    answering(node)
    for number in range(5, 50):  # it may take the link a while to notice that the session was lost
        link.post(number)
        await link.until(lambda number=number: f"m{number}" in dict(world.answers))
        if dict(world.answers)[f"m{number}"] == 200:
            return
    pytest.fail("nothing passes any more")


DEEDS = {
    "answers in the name of another": lambda each: {**each, "from": f"hyperty://{B}/other"},
    "answers another one": lambda each: {**each, "id": "other"},
    "answers without a code": lambda each: {**each, "body": {}},
    "answers 100 for ever": lambda each: {**each, "body": {"code": 100}},
    "answers with what is no message": lambda each: {"body": each},
}


@pytest.mark.parametrize("deed", DEEDS)
async def test_a_request_is_answered_once_though_the_peer(
    deed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers wrongly."""
    for name in ("SILENT_SECONDS", "LEAST_SILENT_SECONDS"):
        monkeypatch.setattr(exchange, name, 0.5)
    monkeypatch.setattr(exchange, "ASKED_SECONDS", 2.0)
    node = NomatrixNode()
    node.port = free_port()
    node.runtimes[THEIRS] = lambda asked: {"code": 200}
    say = node.say

    async def wrongly(message: dict[str, Any]) -> None:
        to, is_ours = message["to"], message["type"] == "response"
        for link in node.known.get(to, ()) if is_ours else ():
            await link.send(json.dumps(DEEDS[deed](message)))
        if not is_ours:
            await say(message)

    node.say = wrongly  # type: ignore[method-assign]
    async with linked(node.stub, node, kind=node.kind, configuration=node.configuration) as link:
        await link.live()
        link.post(1)
        final = [200, 504] if "without" in deed else [504]

        def codes() -> list[Any]:
            return [each["body"].get("code", 200) for each in link.node.said]

        await link.until(lambda: any(each in final for each in codes()))
        await link.until(lambda: not link.link.exchange.is_busy)
        assert sum(each in final for each in codes()) == 1


async def test_writers_are_released_when_the_peer_is_not_needed_any_more() -> None:
    node = NodejsNode()
    node.runtimes[THEIRS] = lambda asked: {"code": 200}
    left: list[dict[str, Any]] = []
    heard = node._heard

    async def note(message: dict[str, Any], link: Any) -> None:
        left.extend([message] if message["type"] == "unsubscribe" else [])
        await heard(message, link)

    node._heard = note  # type: ignore[method-assign]
    async with linked(node.stub, node, kind=node.kind, idle=0.5) as link:
        await link.live()
        world = World(link, node, KINDS["nodejs"])
        await world.asked(1)
        await link.until(lambda: link.link.state == "idle")
        assert [(each["to"], each["body"]) for each in left] == [(SM, {"unsubscribe": [OURS]})]
        await world.asked(2)


async def test_a_peer_of_another_kind_than_it_is_said_to_be_is_asked_for_nothing_more() -> None:
    node = NodejsNode()
    node.runtimes[THEIRS] = lambda asked: {"code": 200}
    async with linked(node.stub, node, kind=kinds.VERTX) as link:
        await link.live()
        link.post(1)
        await link.until(lambda: node.dropped)
        assert OURS not in node.known
        assert World(link, node, KINDS["nodejs"]).answers == []
