"""Links to nodes of the field as they were seen to be (field_nodes.py): both ways, and later."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from msgnode.federation import exchange, kinds
from tests.ports import free_port

from .field_nodes import SM, FieldNode, NodejsNode, NomatrixNode, PollingNode
from .links import OURS, THEIRS, A, B, Linked, linked
from .sandboxes import needs_deno

pytestmark = [needs_deno, pytest.mark.asyncio]

ROOM = f"comm://{B}/room"
OUR_ROOM = f"comm://{A}/room"


@pytest.fixture(
    params=[NodejsNode, PollingNode, NomatrixNode], ids=["nodejs", "nodejs-polling", "nomatrix"]
)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Linked, FieldNode]]:
    """A link to such a node, which is live; a runtime there answers with what it was asked."""
    node: FieldNode = request.param()
    node.port = free_port()  # which is in the configuration
    node.runtimes[THEIRS] = lambda asked: {"code": 200, "value": asked["body"].get("value")}
    assert kinds.guessed([node.stub]) == node.kind
    async with linked(node.stub, node, kind=node.kind, configuration=node.configuration) as link:
        await link.live()
        yield link, node


def answers(link: Linked) -> list[Any]:
    return [
        (each["id"], each["body"]["code"]) for each in link.node.said if each["type"] == "response"
    ]


async def asked(link: Linked, value: int) -> None:
    link.post(value)
    await link.until(lambda: (f"m{value}", 200) in answers(link))


async def first_contact(link: Linked, node: FieldNode, number: int) -> None:
    """A runtime there sends something to an address here, by itself."""
    message = {"id": f"c{number}", "type": "update", "from": THEIRS, "to": OURS, "body": {}}
    await node.say(message)
    await link.until(lambda: any(each["id"] == f"c{number}" for each in link.node.said))


async def test_a_request_is_answered_and_then_its_sender_is_reached_from_there(
    world: tuple[Linked, FieldNode],
) -> None:
    link, node = world
    await asked(link, 1)
    await first_contact(link, node, 1)
    assert link.link.writers is not None
    assert link.link.writers.addresses == [OURS]
    assert node.dropped == []


async def test_an_object_there_is_observed_here_and_one_of_ours_there(
    world: tuple[Linked, FieldNode],
) -> None:
    link, node = world
    link.link.subscriptions.want([f"{ROOM}/changes"])
    await link.until(lambda: f"{ROOM}/changes" in link.link.subscriptions.held)
    change = {"id": 7, "type": "update", "from": ROOM, "to": f"{ROOM}/changes", "body": {"n": 1}}
    await node.say(change)
    await link.until(lambda: any(each["to"] == f"{ROOM}/changes" for each in link.node.said))
    node.runtimes[f"{OUR_ROOM}/changes"] = lambda _: None  # somebody there has subscribed it
    link.post(2, "update", f"{OUR_ROOM}/changes")
    await link.until(lambda: any(each["to"] == f"{OUR_ROOM}/changes" for each in node.heard))


async def test_after_the_peer_was_killed_and_started_everything_is_as_before(
    world: tuple[Linked, FieldNode],
) -> None:
    link, node = world
    await asked(link, 1)
    link.link.subscriptions.want([f"{ROOM}/changes"])
    await link.until(lambda: f"{ROOM}/changes" in link.link.subscriptions.held)
    await node.restart()
    await link.until(lambda: {OURS, f"{ROOM}/changes"} <= set(node.known))
    await first_contact(link, node, 2)
    await asked(link, 3)


async def test_a_request_to_nobody_there_is_answered_though_the_peer_says_nothing(
    world: tuple[Linked, FieldNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "SILENT_SECONDS", 0.2)
    monkeypatch.setattr(exchange, "LEAST_SILENT_SECONDS", 0.2)
    link, node = world
    link.post(1, to=f"hyperty://{B}/nobody")
    await link.until(lambda: answers(link) == [("m1", 504)])
    assert len(node.dropped) == 1
    await asked(link, 2)


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
        await asked(link, 1)
        await link.until(lambda: link.link.state == "idle")
        assert [(each["to"], each["body"]) for each in left] == [(SM, {"unsubscribe": [OURS]})]
        await asked(link, 2)


async def test_a_peer_of_a_kind_that_learns_is_asked_for_nothing_more() -> None:
    node = NodejsNode()
    node.runtimes[THEIRS] = lambda asked: {"code": 200}
    async with linked(node.stub, node, kind=kinds.VERTX) as link:
        await link.live()
        link.post(1)
        await link.until(lambda: node.dropped)
        assert link.link.writers is None
        assert OURS not in node.known
        assert answers(link) == []
