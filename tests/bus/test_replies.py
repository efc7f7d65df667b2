"""An answer waits until every worker knows what it says, and for nothing that comes later."""

from __future__ import annotations

import asyncio

import pytest

from msgnode.bus.ports import NoPolicies
from msgnode.bus.replies import Replies
from msgnode.core import messages
from msgnode.core.errors import Conflict
from tests.fakes import DOMAIN, FakeCaller, FakeComponent, FakeSession

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


async def test_a_refusal_waits_for_nobody() -> None:
    workers, caller, session = Workers(), FakeCaller(), FakeSession("one")
    answer: asyncio.Future[dict[str, int]] = asyncio.get_running_loop().create_future()
    answer.set_exception(Conflict("taken"))
    replies = Replies(NoPolicies(), 5, workers.barrier)
    replies.ask(FakeComponent(answer), request(), session, caller)
    await turns()
    assert [each["body"]["code"] for each in caller.answers] == [409]
    assert (caller.pending, workers.barriers) == (0, [])
