"""Two nodes that are linked, each behind a balancer that loses sockets, and numbers that pass."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any, Self

from tests.client import Frame, code
from tests.e2e.pair import OwnRedis
from tests.e2e.proxy import Way
from tests.node import Node

from .nodes import SECONDS, A, B, TwoNodes
from .returning import Answerer, Returning

TO = f"hyperty://{B}/numbers"


class Balancer(Way):
    """A way to several workers, each connection to the next one."""

    def __init__(self, workers: Sequence[Node]) -> None:
        super().__init__(f"http://127.0.0.1:{workers[0].port}")
        self._ports = cycle([each.port for each in workers])

    async def _accept(self, *ends: Any) -> None:
        self._to = "127.0.0.1", next(self._ports)
        await super()._accept(*ends)


class Clusters(TwoNodes):
    """Nodes a and b that have approved each other; each has a Redis if it is two workers."""

    def __init__(self, place: Path, template: Path, redis: Sequence[OwnRedis]) -> None:
        self.redis = redis
        of_b, of_a = (
            ({"WORKERS": 2, "WORKER_TIMEOUT": 3, "REDIS_URL": each.url} for each in redis)
            if redis
            else ({}, {})
        )
        of_b = {**of_b, "FEDERATION": "listed", "FEDERATION_NETWORKS": "127.0.0.0/8"}
        super().__init__(place, template, of_b, **of_a)
        self.of_a, self.of_b = [self.a], [self.b]
        if redis:
            self.of_a.append(self.second_worker())
            self.of_b.append(Node(self.b.data_dir, DOMAIN=B, ALLOWED_HOSTS="*", **of_b))
        self.to_a, self.to_b = Balancer(self.of_a), Balancer(self.of_b)

    def start(self) -> None:
        for redis in self.redis:
            redis.start()
        for each in (*self.of_a, *self.of_b):
            each.start()

    def kill(self) -> None:
        for each in (*self.of_a, *self.of_b):
            each.kill()
        for redis in self.redis:
            redis.stop()

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
        self.linked()

    def linked(self) -> list[Node]:
        """The workers that have the link, once one at each end has it."""
        return [has_link(self.of_a, B), has_link(self.of_b, A)]

    def others(self) -> list[Node]:
        """The workers that run and have it not."""
        return [each for each in (*self.of_a, *self.of_b) if each not in self.linked()]


def has_link(workers: Sequence[Node], domain: str) -> Node:
    """The one worker that has the open link to a domain, once there is one."""
    wanted = ("msgnode_peer_state{", f'"{domain}"', '"live"')
    until = time.monotonic() + SECONDS
    while True:
        running = [each for each in workers if each.is_running()]
        lines = {each: each.text("/metrics?worker=this").splitlines() for each in running}
        found = [
            each
            for each, told in lines.items()
            if any(all(word in line for word in wanted) for line in told)
        ]
        assert len(found) <= 1, "two workers have the link"
        if found:
            return found[0]
        assert time.monotonic() < until, [each.log()[-2_000:] for each in running]
        time.sleep(0.05)


@contextmanager
def clusters(place: Path, template: Path, workers: int = 1) -> Iterator[Clusters]:
    """Nodes of so many workers run while the block does, and are linked."""
    redis = [OwnRedis(place), OwnRedis(place)] if workers > 1 else []
    with Clusters(place / "nodes", template, redis).running() as both:
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
