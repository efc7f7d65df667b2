"""An answer waits until every worker knows what it says, and for nothing that comes later."""

from __future__ import annotations

import asyncio

import pytest

from msgnode.bus.ports import NoPolicies
from msgnode.bus.replies import Replies
from msgnode.bus.writing import Findable
from msgnode.core import messages
from msgnode.core.errors import Conflict
from msgnode.core.faults import FAULTS
from tests.fakes import DOMAIN, FakeCaller, FakeComponent, FakeSession
from tests.node import eventually
from tests.stage.bus import Scene

OK = {"code": 200}


class Workers:
    """Other workers that always have something left to do: each barrier is a new one."""

    def __init__(self) -> None:
        self.barriers: list[asyncio.Future[None]] = []

    def barrier(self) -> asyncio.Future[None]:
        self.barriers.append(asyncio.get_running_loop().create_future())
        return self.barriers[-1]


def request() -> messages.Message:
    text = '{"id":1,"type":"create","from":"hyperty://d/1","to":"domain://fake.%s","body":{}}'
    return messages.parse((text % DOMAIN).encode())


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("is_committed", [False, True])
async def test_an_answer_waits_for_its_own_barrier_only(is_committed: bool) -> None:
    workers, caller, session = Workers(), FakeCaller(), FakeSession("one")
    answer: asyncio.Future[dict[str, int]] = asyncio.get_running_loop().create_future()
    answer.set_result(OK)
    component = FakeComponent(answer if is_committed else OK)
    Replies(NoPolicies(), 5, workers.barrier).ask(component, request(), session, caller)
    await turns()
    assert (caller.answers, caller.pending, len(workers.barriers)) == ([], 1, 1)
    workers.barriers[0].set_result(None)
    await turns()
    assert [each["body"]["code"] for each in caller.answers] == [200]
    assert (caller.pending, len(workers.barriers)) == (0, 1)


async def test_an_answer_that_names_what_all_can_find_waits_for_that_alone() -> None:
    workers, directory = Workers(), Workers()
    caller, session = FakeCaller(), FakeSession("one")
    answer: asyncio.Future[dict[str, int]] = asyncio.get_running_loop().create_future()
    answer.set_result(Findable(OK))
    replies = Replies(NoPolicies(), 5, workers.barrier, directory.barrier)
    replies.ask(FakeComponent(answer), request(), session, caller)
    await turns()
    assert (caller.answers, len(directory.barriers), workers.barriers) == ([], 1, [])
    directory.barriers[0].set_result(None)
    await turns()
    assert [each["body"]["code"] for each in caller.answers] == [200]


@pytest.mark.parametrize("is_committed", [False, True])
async def test_w8_an_answer_of_a_component_that_tells_workers_nothing_waits_for_nobody(
    is_committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeComponent, "tells_workers", False)
    workers, caller, session = Workers(), FakeCaller(), FakeSession("one")
    answer: asyncio.Future[dict[str, int]] = asyncio.get_running_loop().create_future()
    answer.set_result(OK)
    component = FakeComponent(answer if is_committed else OK)
    Replies(NoPolicies(), 5, workers.barrier).ask(component, request(), session, caller)
    await turns()
    assert [each["body"]["code"] for each in caller.answers] == [200]
    assert (caller.pending, workers.barriers) == (0, [])


async def test_a_refusal_waits_for_nobody() -> None:
    workers, caller, session = Workers(), FakeCaller(), FakeSession("one")
    answer: asyncio.Future[dict[str, int]] = asyncio.get_running_loop().create_future()
    answer.set_exception(Conflict("taken"))
    replies = Replies(NoPolicies(), 5, workers.barrier)
    replies.ask(FakeComponent(answer), request(), session, caller)
    await turns()
    assert [each["body"]["code"] for each in caller.answers] == [409]
    assert (caller.pending, workers.barriers) == (0, [])


@pytest.mark.parametrize("waits_for", ["commit", "coroutine", "workers"])
async def test_an_answer_that_does_not_come_is_504_at_its_limit_and_taken_back_if_it_comes_later(
    waits_for: str,
) -> None:
    workers, caller, session = Workers(), FakeCaller(), FakeSession("one")
    committed: asyncio.Future[dict[str, int]] = asyncio.get_running_loop().create_future()

    async def connector() -> dict[str, int]:
        return await committed

    given = {"commit": committed, "coroutine": connector, "workers": OK}[waits_for]
    component = FakeComponent(given)
    Replies(NoPolicies(), 0.05, workers.barrier).ask(component, request(), session, caller)
    async with asyncio.timeout(10):
        while not caller.answers:
            await eventually(0.01)
    assert [each["body"]["code"] for each in caller.answers] == [504]
    assert caller.pending == 0
    if waits_for != "coroutine":  # which is ended instead
        if waits_for == "commit":
            committed.set_result(OK)
            await turns()
        workers.barriers[0].set_result(None)
        await turns()
        assert (component.revoked, component.revoked_of) == ([OK], [session])
    assert len(caller.answers) == 1


@pytest.mark.parametrize("cancels", [False, True])
async def test_a_future_is_cancelled_with_its_time_where_the_component_says_so(
    cancels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeComponent, "cancels", cancels)
    caller = FakeCaller()
    answer: asyncio.Future[dict[str, int]] = asyncio.get_running_loop().create_future()
    Replies(NoPolicies(), 0.05).ask(FakeComponent(answer), request(), FakeSession("one"), caller)
    async with asyncio.timeout(10):
        while not caller.answers:
            await eventually(0.01)
    await turns()
    assert [each["body"]["code"] for each in caller.answers] == [504]
    assert answer.cancelled() == cancels


async def test_an_answer_that_is_given_up_is_503_and_not_silence() -> None:
    caller = FakeCaller()
    answer: asyncio.Future[dict[str, int]] = asyncio.get_running_loop().create_future()
    Replies(NoPolicies(), 5).ask(FakeComponent(answer), request(), FakeSession("one"), caller)
    answer.cancel()
    await turns()
    assert [each["body"]["code"] for each in caller.answers] == [503]


async def test_a_component_that_cannot_take_back_is_counted_and_stops_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def breaks(*_: object) -> None:
        raise RuntimeError("it is broken")

    monkeypatch.setattr(FakeComponent, "revoke", breaks)
    before = FAULTS.counts["session"]
    answer: asyncio.Future[dict[str, int]] = asyncio.get_running_loop().create_future()
    caller = FakeCaller()
    monkeypatch.setattr(FakeComponent, "tells_workers", False)
    replies = Replies(NoPolicies(), 0.05, Workers().barrier)
    replies.ask(FakeComponent(answer), request(), FakeSession("one"), caller)
    async with asyncio.timeout(10):
        while not caller.answers:
            await eventually(0.01)
    assert [each["body"]["code"] for each in caller.answers] == [504]
    answer.set_result(OK)
    await turns()
    assert FAULTS.counts["session"] == before + 1
    assert len(caller.answers) == 1


@pytest.mark.parametrize("code", [200, 404])
async def test_what_a_component_answers_is_the_code_that_is_noted(code: int) -> None:
    scene = Scene(FakeComponent({"code": code}))
    scene.say(to=f"domain://fake.{DOMAIN}")
    assert (scene.codes, scene.row().code) == ([code], code)
