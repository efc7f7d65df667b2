"""The subscription manager between a request and its commit: what holds, for whom, and when."""

from __future__ import annotations

import asyncio
import json
from asyncio import Future
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from msgnode.bus.address_budget import AddressBudget
from msgnode.bus.last_owners import LastOwnerCache
from msgnode.bus.ownership import Ownership
from msgnode.bus.ports import Body
from msgnode.bus.table import RoutingTable
from msgnode.core import messages
from msgnode.core.errors import (
    BadMessage,
    Conflict,
    Forbidden,
    GatewayTimeout,
    TooMany,
    Unavailable,
)
from msgnode.subscriptions.component import SubscriptionComponent, SubscriptionLimits
from msgnode.subscriptions.store import SubscriptionStore
from tests.fakes import FakeSession, FakeWriter

SM = "domain://msg-node.d/sm"
OWN, CHANGES = "hyperty://d/1", "comm://d/1/changes"
FAR = "comm://far.example/1/changes"


class Owned:
    """Address allocation, with room for everybody."""

    def __init__(self, table: RoutingTable) -> None:
        self.table = table

    def enter(self, address: str, key: str, session: Any) -> None:
        self.table.allocate(address, session)

    def drop(self, address: str, session: Any) -> None:
        self.table.release(address, session)

    def check_room(self, session: Any, number: int) -> None:
        pass


class Abroad:
    """Another domain, `far.example`, which grants when told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[str], asyncio.Future[None]]] = []

    def abroad(self, named: Iterable[str]) -> list[str]:
        return [each for each in named if "far.example" in each]

    async def subscribe(self, wanted: Sequence[str]) -> None:
        if wanted:
            answer = asyncio.get_running_loop().create_future()
            self.asked.append((list(wanted), answer))
            await answer


class Scene:
    """The component, a writer that commits when told to, and two sessions."""

    def __init__(self) -> None:
        self.abroad = Abroad()
        self.table, self.writer = RoutingTable(), FakeWriter()
        self.component = SubscriptionComponent(
            self.table,
            SubscriptionStore(self.writer),
            "d",
            Owned(self.table),
            Ownership(self.table, LastOwnerCache(), "d", shares=True),
            SubscriptionLimits(per_session=3, per_request=10),
            AddressBudget(1_000),
            self.abroad,
        )
        self.mine, self.other = FakeSession("runtime://d/1"), FakeSession("runtime://d/2")
        self.table.add_runtime(self.mine)
        self.table.add_runtime(self.other)

    def ask(self, session: FakeSession, *addresses: str, type_: str = "subscribe") -> Any:
        frame = {"id": 1, "type": type_, "from": session.runtime_url, "to": SM}
        body = {"resources": list(addresses)}
        message = messages.parse(json.dumps({**frame, "body": body}).encode())
        return self.component.answer(message, session)

    def close(self, session: FakeSession) -> None:
        self.table.remove_runtime(session)
        self.component.session_closed(session, "closed")


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"resources": [OWN, CHANGES]}, [OWN]),
        ({"resource": OWN, "childrenResources": ["x"]}, [f"{OWN}/x", OWN]),
        ({"resources": ["no\naddress"]}, []),
        ({}, []),
    ],
)
def test_who_holds_an_address_must_be_known_where_not_everybody_may_subscribe_it(
    scene: Scene, body: Any, expected: list[str]
) -> None:
    frame = {"id": 1, "type": "subscribe", "from": "runtime://d/1", "to": SM, "body": body}
    message = messages.parse(json.dumps(frame).encode())
    assert scene.component.addresses_of(message) == expected


async def result(answer: Body | Future[Body]) -> int:
    body = answer if isinstance(answer, dict) else answer.result()
    code = body["code"]
    assert isinstance(code, int)
    return code


async def test_a_subscription_holds_at_once_and_is_answered_after_its_commit(scene: Scene) -> None:
    answer = scene.ask(scene.mine, CHANGES)
    assert scene.table.listeners(CHANGES) == (scene.mine,)
    assert not answer.done()
    await scene.writer.commit()
    assert await result(answer) == 200


async def test_a_claim_holds_from_its_commit(scene: Scene) -> None:
    answer = scene.ask(scene.mine, OWN)
    assert scene.table.listeners(OWN) == ()
    await scene.writer.commit()
    assert await result(answer) == 200
    assert scene.table.listeners(OWN) == (scene.mine,)


@pytest.mark.parametrize("address", [CHANGES, OWN])
async def test_what_is_repeated_is_not_acknowledged_before_the_first_is_committed(
    scene: Scene, address: str
) -> None:
    first, second = scene.ask(scene.mine, address), scene.ask(scene.mine, address)
    assert not first.done()
    assert not second.done()
    await scene.writer.commit(2)
    assert [await result(first), await result(second)] == [200, 200]
    assert await result(scene.ask(scene.mine, address)) == 200


def asking(scene: Scene, *addresses: str) -> Future[Body]:
    """A request that is not answered at once."""
    return asyncio.ensure_future(scene.ask(scene.mine, *addresses))


async def settled(scene: Scene) -> None:
    """All has been committed, and who waits for it has had its turn."""
    await scene.writer.commit(len(scene.writer.waiting))
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("fault", [None, GatewayTimeout("late")])
async def test_what_is_repeated_has_the_answer_of_the_first_that_waits_for_another_domain(
    scene: Scene, fault: GatewayTimeout | None
) -> None:
    first, second = asking(scene, FAR), asking(scene, FAR, CHANGES)
    await settled(scene)
    assert not first.done() and not second.done()
    ((named, grant),) = scene.abroad.asked
    assert named == [FAR]
    if fault is None:
        grant.set_result(None)
        await settled(scene)
        assert [await result(first), await result(second)] == [200, 200]
        assert scene.table.listeners(FAR) == (scene.mine,)
        assert await result(scene.ask(scene.mine, FAR)) == 200
        return
    grant.set_exception(fault)
    for answer in (first, second):
        with pytest.raises(GatewayTimeout):
            await answer
    await settled(scene)
    assert scene.table.listeners(FAR) == scene.table.listeners(CHANGES) == ()


async def test_what_was_subscribed_anew_is_not_taken_back_with_an_earlier_request(
    scene: Scene,
) -> None:
    first = asking(scene, FAR)
    await settled(scene)
    scene.ask(scene.mine, FAR, type_="unsubscribe")
    again = asking(scene, FAR)
    await settled(scene)
    (_, late), (_, grant) = scene.abroad.asked
    late.set_exception(GatewayTimeout("late"))
    with pytest.raises(GatewayTimeout):
        await first
    await settled(scene)
    assert not again.done()
    grant.set_result(None)
    await settled(scene)
    assert await result(again) == 200
    assert scene.table.listeners(FAR) == (scene.mine,)


@pytest.mark.parametrize("address", [CHANGES, OWN])
async def test_a_commit_that_fails_undoes_the_request_and_those_that_repeat_it(
    scene: Scene, address: str
) -> None:
    first, second = scene.ask(scene.mine, address), scene.ask(scene.mine, address)
    await scene.writer.commit(error=Unavailable("off"))
    await scene.writer.commit()
    for answer in (first, second):
        with pytest.raises(Unavailable):
            await answer
    assert scene.table.listeners(address) == ()


async def test_a_claim_that_another_made_first_is_refused_403(scene: Scene) -> None:
    answer = scene.ask(scene.mine, OWN, CHANGES)
    await scene.writer.commit(error=Conflict("taken"))
    with pytest.raises(Forbidden):
        await answer
    assert scene.table.listeners(OWN) == scene.table.listeners(CHANGES) == ()


async def test_a_claim_of_a_session_that_ended_meanwhile_holds_for_nobody(scene: Scene) -> None:
    scene.ask(scene.mine, OWN)
    scene.close(scene.mine)
    await scene.writer.commit()
    assert scene.table.listeners(OWN) == ()
    assert scene.table.owner_of(OWN) is None


async def test_nobody_is_subscribed_for_a_session_that_ended(scene: Scene) -> None:
    scene.ask(scene.mine, CHANGES)
    await scene.writer.commit()
    scene.ask(scene.mine, CHANGES, type_="unsubscribe")
    scene.close(scene.mine)
    await scene.writer.commit(error=Unavailable("off"))
    assert scene.table.listeners(CHANGES) == ()


async def test_an_unsubscription_that_fails_leaves_the_subscription(scene: Scene) -> None:
    scene.ask(scene.mine, CHANGES)
    await scene.writer.commit()
    answer = scene.ask(scene.mine, CHANGES, type_="unsubscribe")
    assert scene.table.listeners(CHANGES) == ()
    await scene.writer.commit(error=Unavailable("off"))
    with pytest.raises(Unavailable):
        await answer
    assert scene.table.listeners(CHANGES) == (scene.mine,)


async def test_the_limit_counts_what_is_under_way(scene: Scene) -> None:
    for number in range(3):
        scene.ask(scene.mine, f"comm://d/{number}/changes")
    with pytest.raises(TooMany):
        scene.ask(scene.mine, "comm://d/4/changes")


async def test_a_request_is_refused_whole(scene: Scene) -> None:
    scene.table.allocate(OWN, scene.other)
    with pytest.raises(Forbidden):
        scene.ask(scene.mine, CHANGES, OWN)
    assert scene.table.listeners(CHANGES) == ()
    assert not scene.writer.waiting


def test_a_request_costs_as_many_messages_as_it_names_addresses(scene: Scene) -> None:
    def cost(type_: str, body: dict[str, Any]) -> int:
        frame = {"id": 1, "type": type_, "from": scene.mine.runtime_url, "to": SM, "body": body}
        return scene.component.cost(messages.parse(json.dumps(frame).encode()))

    assert cost("subscribe", {"resources": [CHANGES]}) == 0
    assert cost("unsubscribe", {"resources": [f"comm://d/{n}/changes" for n in range(3)]}) == 2
    assert cost("subscribe", {"resource": "comm://d/1", "children": ["a"]}) == 2
    assert cost("read", {}) == 0


def test_a_source_without_end_is_refused(scene: Scene) -> None:
    body = {"resources": [CHANGES], "source": "a:" + "b/" * 1_000}
    frame = {"id": 1, "type": "subscribe", "from": scene.mine.runtime_url, "to": SM, "body": body}
    message = messages.parse(json.dumps(frame).encode())
    assert scene.component.addresses_of(message) == []
    with pytest.raises(BadMessage, match="source"):
        scene.component.answer(message, scene.mine)
