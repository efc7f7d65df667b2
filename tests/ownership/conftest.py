"""A node of one worker, and one of two (long), with people at it in each mode of admission.

`parties` is asked for by every test of this directory, so each runs in mode anonymous with one
worker, and in mode strict with two, where the people come to both in turn.
"""

from __future__ import annotations

import itertools
import shutil
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.client import SESSION, Client, code
from tests.e2e.pair import OwnRedis, Pair
from tests.issuer import Issuer, enter
from tests.node import Node

HOMES = {"anonymous": "localhost", "identified": "identified.test", "strict": "strict.test"}


class Parties:
    """Brings runtimes of people to the node, each to the next worker."""

    def __init__(self, nodes: list[Node], mode: str, issuer: Issuer, stack: AsyncExitStack) -> None:
        self.mode = mode
        self.nodes = nodes
        self._turn = itertools.cycle(nodes)
        self._issuer = issuer
        self._stack = stack
        self._mark = uuid.uuid4().hex[:8]

    @property
    def knows_people(self) -> bool:
        """Whether sessions are bound to people."""
        return self.mode != "anonymous"

    @property
    def idp_domain(self) -> str:
        """The domain of their identities."""
        return self._issuer.domain

    def user(self, who: str) -> str:
        """The user id that the issuer asserts for somebody."""
        return f"user://{self.idp_domain}/{who}-{self._mark}@{self.idp_domain}"

    def url(self) -> str:
        """A runtime URL that nobody else uses."""
        return f"runtime://{HOMES[self.mode]}/{uuid.uuid4().hex}"

    def address(self, scheme: str = "hyperty") -> str:
        """An address of the domain of these people's runtimes that nobody else uses."""
        return f"{scheme}://{HOMES[self.mode]}/{uuid.uuid4()}"

    async def bring(self, who: str, runtime_url: str = "", home: str = "") -> Client:
        """A runtime with an open session, logged in as `who` where the mode asks for it."""
        client = await self._stack.enter_async_context(next(self._turn).ws())
        url = runtime_url or self.url()
        if home:
            url = url.replace(HOMES[self.mode], home)
        if not self.knows_people:
            return await client.open(url)
        login = {"accessToken": self._issuer.token(f"{who}-{self._mark}")}
        answer = await client.ask("open", SESSION, login, sender=url)
        assert code(answer) == 200, answer
        client.runtime_url, client.token = url, answer["body"]["runtimeToken"]
        client.user = self.user(who)
        return client

    async def back(self, before: Client) -> Client:
        """The runtime of `before` resumes its session, at the next worker."""
        client = await self._stack.enter_async_context(next(self._turn).ws())
        return await client.resume(before)

    def metric(self, name: str) -> float:
        """The sum of a counter over the workers."""
        lines = self.nodes[0].text("/metrics").splitlines()
        return sum(float(each.rpartition(" ")[2]) for each in lines if each.startswith(name))


@pytest.fixture(scope="session")
def two_workers(
    tmp_path_factory: pytest.TempPathFactory,
    template: Path,
    issuer: Issuer,
) -> Iterator[list[Node]]:
    place = tmp_path_factory.mktemp("ownership")
    shutil.copy(template, place / "node.sqlite3")
    enter(place / "node.sqlite3", issuer.row())
    settings: dict[str, Any] = {
        "ADMISSION_DOMAINS": "identified.test=identified,strict.test=strict",
        "WORKER_TIMEOUT": 120,  # so that no runtime is told to come back while sessions even out
    }
    redis = OwnRedis(place)  # on one Redis these and the workers of other tests would be one node
    both = Pair(place, REDIS_URL=redis.url, **settings)
    try:
        redis.start()
        both.start()
        yield [both.one, both.other]
        assert both.one.is_running(), both.one.log()
        assert both.other.is_running(), both.other.log()
    finally:
        both.kill()
        redis.stop()


@pytest.fixture(
    params=[("anonymous", 1), pytest.param(("strict", 2), marks=pytest.mark.long)],
    ids=lambda param: f"{param[0]}-{param[1]}",
)
def admitting(request: pytest.FixtureRequest) -> tuple[str, list[Node]]:
    """A mode of admission, and the workers of a node that has it."""
    mode, workers = request.param
    if workers == 1:
        return mode, [request.getfixturevalue("idnode")]
    return mode, list(request.getfixturevalue("two_workers"))


@pytest.fixture
async def parties(admitting: tuple[str, list[Node]], issuer: Issuer) -> AsyncIterator[Parties]:
    mode, nodes = admitting
    async with AsyncExitStack() as stack:
        yield Parties(nodes, mode, issuer, stack)
