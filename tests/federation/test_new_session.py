"""Two real nodes: what was asked in a session of the other node ends with that session, at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests import waiting
from tests.client import Client, Frame, code

from .nodes import A, B, TwoNodes, answer_requests, come, subscribe
from .sandboxes import needs_deno
from .test_observers import _FORGET

pytestmark = [
    needs_deno,
    pytest.mark.asyncio,
    pytest.mark.long,
    pytest.mark.usefixtures("sessions_end"),
]

MANY = 20


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[TwoNodes]:
    two = TwoNodes(tmp_path_factory.mktemp("sessions"), template, SANDBOX_SILENCE_SECONDS=12)
    with two.running():
        yield two


class Asked:
    """A runtime of a that has asked one of b, which has its requests and has not answered yet."""

    def __init__(self, nodes: TwoNodes, name: str) -> None:
        self.ours, self.theirs = f"hyperty://{A}/{name}", f"hyperty://{B}/{name}"
        self.ids: list[str] = []
        self.requests: list[Frame] = []
        self._nodes, self._name = nodes, name

    async def begin(self) -> Asked:
        await asyncio.to_thread(self._nodes.wait_live)
        self.asker = await come(self._nodes.a, A, f"asker-{self._name}")
        self.silent = await come(self._nodes.b, B, f"silent-{self._name}")
        assert code(await subscribe(self.silent, B, self.theirs)) == 200
        for number in range(MANY):
            id_ = f"{self._name}-{number}"
            self.ids.append(id_)
            await self.asker.send("read", self.theirs, {"value": number}, id=id_, sender=self.ours)
            self.requests.append(await self.silent.expect(type="read", to=self.theirs))
        return self

    async def answered(self, wanted: int) -> list[str]:
        """What the asker is told, each request once; the descriptions."""
        texts = []
        for id_ in self.ids:
            answer = await self.asker.answer(id_)
            assert code(answer) == wanted, answer
            assert answer["from"] == self.theirs
            texts.append(answer["body"].get("description", ""))
        return texts

    async def answer(self, client: Client) -> None:
        """The other one answers after all."""
        for request in self.requests:
            await client.send(
                "response", self.ours, {"code": 200}, id=request["id"], sender=self.theirs
            )

    async def hears_nothing_more(self) -> None:
        """Whatever else has come to the asker, no request was answered twice."""
        await self.asker.ask("read", f"hyperty://{A}/nobody")
        assert not [each for each in self.asker.inbox if each.get("id") in self.ids]


async def until_answered(one: Asked) -> None:
    asking = partial(one.asker.ask, "read", one.theirs, {"value": "again"}, sender=one.ours)
    await waiting.seen(asking, lambda answer: code(answer) == 200, 60)


async def test_case_49_requests_of_a_session_that_the_other_node_has_ended_are_answered_at_once(
    nodes: TwoNodes,
) -> None:
    one = await Asked(nodes, "ended").begin()
    await asyncio.to_thread(nodes.b.manage, "shell", "-c", _FORGET)
    for text in await one.answered(503):
        assert "began anew" in text
    await one.answer(one.silent)  # too late
    answering = asyncio.create_task(answer_requests(one.silent))
    await until_answered(one)
    answering.cancel()
    await one.hears_nothing_more()


async def test_requests_at_a_node_that_is_killed_and_goes_on_with_the_session_are_answered_at_once(
    nodes: TwoNodes,
) -> None:
    one = await Asked(nodes, "killed").begin()
    token, url = one.silent.token, one.silent.runtime_url
    nodes.b.kill()
    for text in await one.answered(503):
        assert "has ended" in text
    await asyncio.to_thread(nodes.b.start)
    back = await Client(f"ws://127.0.0.1:{nodes.b.port}/ws").connect()
    assert code(await back.reopen(url, token)) == 200
    answering = asyncio.create_task(answer_requests(back))
    await until_answered(one)
    answering.cancel()
    await one.hears_nothing_more()
