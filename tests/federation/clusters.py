"""Two nodes that are linked, each behind a balancer that loses sockets, and numbers that pass."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Self

from tests.client import Frame, code
from tests.e2e.proxy import Way
from tests.node import Node

from .nodes import SECONDS, A, B, TwoNodes
from .returning import Answerer, Returning

TO = f"hyperty://{B}/numbers"


class Clusters(TwoNodes):
    """Nodes a and b that have approved each other, each behind a balancer."""

    def __init__(self, place: Path, template: Path) -> None:
        of_b = {"FEDERATION": "listed", "FEDERATION_NETWORKS": "127.0.0.0/8"}
        super().__init__(place, template, of_b)
        self.to_a, self.to_b = (Way(f"http://127.0.0.1:{each.port}") for each in (self.a, self.b))

    def lose(self, is_told: bool = True) -> None:
        """Lose the sockets between them; the nodes are told, or not."""
        for way in (self.to_a, self.to_b):
            way.lose(is_told)

    def introduce(self) -> None:
        ends = ((self.a, B, self.to_b), (self.b, A, self.to_a))
        for node, domain, way in ends:
            node.manage("peers", "add", domain, "--url", way.url)
        for node, domain, _ in ends:
            self.wait(lambda peer: peer["node_found"], node, domain)
            node.manage("peers", "approve", domain)
        for node, domain, _ in ends:
            self.wait(lambda peer: peer["state"] == "live", node, domain)


@contextmanager
def clusters(place: Path, template: Path) -> Iterator[Clusters]:
    """Nodes run while the block does, and are linked."""
    with Clusters(place / "nodes", template).running() as both:
        yield both


class _Asker(Returning):
    """Asks with numbers; each tenth request is a stored one."""

    def __init__(self, node: Node) -> None:
        super().__init__(node, A, "asks")
        self.asked = 0
        self.codes: dict[int, list[int]] = {}
        self.answered: list[int] = []

    async def ask(self, _: int) -> None:
        number = self.asked + 1
        body = {"value": number, "store": number % 10 == 0}
        if await self.say("read", TO, body, id=f"r{number}"):
            self.asked = number

    def take(self, frame: Frame) -> None:
        if frame["type"] == "response" and str(frame["id"]).startswith("r"):
            number = int(str(frame["id"])[1:])
            self.codes.setdefault(number, []).append(code(frame))
            if code(frame) == 200:
                self.answered.append(number)


class _Answerer(Answerer):
    """Answers, and writes down the numbers."""

    def __init__(self, node: Node) -> None:
        super().__init__(node, B, "answers", TO)
        self.heard: list[int] = []
        self.heard_at: list[float] = []

    def take(self, frame: Frame) -> None:
        if frame["type"] == "read":
            self.heard.append(frame["body"]["value"])
            self.heard_at.append(time.monotonic())
        super().take(frame)


class Numbers:
    """A runtime of a asks one of b with numbers, steadily."""

    def __init__(self, here: Node, there: Node) -> None:
        self.asker, self.answerer = _Asker(here), _Answerer(there)

    @asynccontextmanager
    async def passing(self, a_second: float) -> AsyncIterator[Self]:
        """They pass while the block runs; then what is under way is waited for."""
        both = (self.asker, self.answerer)
        tasks = [asyncio.create_task(each.run()) for each in both]
        try:
            async with asyncio.timeout(SECONDS):
                for each in both:
                    await each.is_there.wait()
            asking = asyncio.create_task(self.asker.steadily(a_second, self.asker.ask))
            tasks.append(asking)
            await self.passes()
            yield self
            asking.cancel()
            await self.until(self.is_over)
        finally:
            for task in tasks:
                task.cancel()

    def is_over(self) -> bool:
        """Whether the last one is answered, and each that was said to be stored."""
        codes = self.asker.codes
        return codes.get(self.asker.asked, [100]) != [100] and [100] not in codes.values()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(SECONDS):
            while not condition():  # noqa: ASYNC110  (what is waited for tells nobody)
                await asyncio.sleep(0.02)

    async def passes(self) -> None:
        """Wait until what is asked from now on is answered, fifty times."""
        answered, first = self.asker.answered, self.asker.asked
        before = len(answered)
        await self.until(lambda: sum(each > first for each in answered[before:]) >= 50)

    def longest_pause(self, since: float) -> float:
        """Most seconds since then in which nothing was heard."""
        at = [since, *(each for each in self.answerer.heard_at if each > since)]
        return max(after - before for before, after in pairwise(at))

    def check(self) -> None:
        """Nothing that was answered was lost; in order; none twice but a stored one."""
        plain = [number for number in self.answerer.heard if number % 10]
        assert plain == sorted(set(plain)), "each once, in order"
        assert set(self.asker.answered) <= set(self.answerer.heard)
        for number, codes in self.asker.codes.items():
            final = [each for each in codes if each != 100]
            assert len(final) <= 1 or number % 10 == 0, (number, codes)
            assert set(final) <= {200, 403, 503, 504}, (number, codes)
            assert set(final) == {200} or 100 not in codes, (number, codes)
