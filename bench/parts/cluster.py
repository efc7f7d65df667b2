"""The directory of a large node: the code of 40 workers on one Redis, with synthetic sessions.

Each session has a runtime URL, two addresses and a subscription. Measured are what an entry costs,
and what a question costs that a worker asks, alone and with others in one turn of the event loop:
who is at a runtime URL that opens, and who is at an address that is sent to for the first time; how
long a worker that comes takes until it is ready, and the others until they are entered for all that
one of them had, which has ended. And for how many messages a worker has to ask, of senders that
keep to their own objects and of others.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

from bench.figures import PartResult, Sample
from bench.plan import Plan
from bench.processes import cpu_seconds
from msgnode.bus.table import RoutingTable
from msgnode.core.addresses import names_of
from msgnode.redis.client import RedisClient
from msgnode.redis.directory import Kind
from msgnode.servers.collector import Collector
from msgnode.workers.announcements import Announcements, Watchers
from msgnode.workers.interest import Interest
from msgnode.workers.own_names import HOLDS, LISTENS, OwnNames
from msgnode.workers.remote_sessions import RemoteSessions

from .subscription import Worker, join_late, start_workers
from .workers import redis_of

WORKERS = 40
SESSIONS, QUICK = 1_000_000, 20_000
_AT_ONCE = 4_000  # sessions that are entered before Redis is waited for
_QUESTIONS, _TOGETHER = 4_000, 100
_ENTRIES = 4  # of a session: its runtime, two addresses, what it listens to
_MESSAGES = 200_000  # of one worker, whose recipients are drawn


def measure(plan: Plan) -> PartResult:
    sessions = QUICK if plan.quick else SESSIONS
    result = PartResult("cluster", f"The directory of {WORKERS} workers, per second")
    with redis_of(plan) as url:
        asyncio.run(_measure(plan, url, sessions, result))
    return result


class _Node:
    """The workers of a node, and the Redis that they have in common."""

    def __init__(self, url: str, workers: list[Worker]) -> None:
        self.url = url
        self.operator = RedisClient(url)
        self.workers = workers
        self.epochs = [each.transport.me.epoch for each in workers]
        self.directories = [each.directory for each in workers]

    async def close(self) -> None:
        await asyncio.gather(*(each.close() for each in self.workers))
        await self.operator.close()

    async def figure(self, section: str, name: str) -> float:
        text: bytes = await self.operator.execute("INFO", section)
        lines = dict(line.split(":", 1) for line in text.decode().splitlines() if ":" in line)
        return float(lines[name])

    async def enter(self, sessions: int) -> None:
        """What every worker does with its share of the sessions, in turns."""
        for start in range(0, sessions, _AT_ONCE):
            held: list[list[str]] = [[] for _ in self.epochs]
            heard: list[list[str]] = [[] for _ in self.epochs]
            for number in range(start, min(start + _AT_ONCE, sessions)):
                worker = number % WORKERS
                held[worker] += _runtime(number), *_addresses(number)
                heard[worker].append(_heard(number))
            for names, epoch, each in zip(held, self.epochs, self.directories, strict=True):
                await each.join(names, f"={epoch}")
            for names, epoch, each in zip(heard, self.epochs, self.directories, strict=True):
                await each.join(names, epoch)
        for epoch, each in zip(self.epochs, self.directories, strict=True):
            await each.keep_filled(epoch)


async def _measure(plan: Plan, url: str, sessions: int, result: PartResult) -> None:
    Collector().start(asyncio.get_running_loop())
    node = _Node(url, await start_workers(url, WORKERS))
    await node.operator.start()
    server = int(await node.figure("server", "process_id"))
    empty = await node.figure("memory", "used_memory")
    title = f"{sessions:,} sessions"
    sample = await _timed(node, node.enter(sessions), server, sessions * _ENTRIES)
    held = await node.figure("memory", "used_memory") - empty
    sample["bytes_of_a_session"] = held / sessions
    result.case(f"{title}: entered by one process", "entries").samples.append(sample)
    plan.say(f"{title}: entered: {sample}")
    picks = random.Random(16)  # noqa: S311  (which sessions are asked for)
    for _ in range(plan.rounds):
        for together in (1, _TOGETHER):
            asked = [
                [picks.randrange(sessions) for _ in range(together)]
                for _ in range(_QUESTIONS // together)
            ]
            sample = await _timed(node, _open(node, asked), server, _QUESTIONS)
            name = "one after another" if together == 1 else f"{together} in one turn"
            result.case(f"{title}: runtimes looked up, {name}", "questions").samples.append(sample)
            sample = await _timed(node, _watch(node, asked), server, _QUESTIONS)
            case = result.case(f"{title}: first messages to an address, {name}", "questions")
            case.samples.append(sample)
        sample = await join_late(url, node.workers)
        sample["rate"] = 1000 / sample["p50_ms"]
        result.case(f"{title}: a worker that comes", "ready").samples.append(sample)
    of_one = range(WORKERS - 1, sessions, WORKERS)
    sample = await _timed(node, _take_over(node, of_one), server, len(of_one))
    result.case(f"{title}: taken over from one that has ended", "sessions").samples.append(sample)
    plan.say(f"{title}: taken over: {sample}")
    await node.close()
    for mix, known in {"their own objects": _own, "any, by Zipf": _zipf, "any": _any}.items():
        result.notes.append(await _asked_for(sessions, mix, known))


async def _open(node: _Node, asked: Sequence[Sequence[int]]) -> None:
    for turn, numbers in enumerate(asked):
        runtimes = [_runtime(number) for number in numbers]
        names = {name for url in runtimes for name in names_of(url)}
        asker = node.directories[turn % WORKERS]
        found, is_whole = await asyncio.gather(
            asker.members(Kind.NAME, names), asker.are_filled(node.epochs)
        )
        if not is_whole or found.keys() < set(runtimes):
            raise RuntimeError("The directory does not know what was entered.")


async def _watch(node: _Node, asked: Sequence[Sequence[int]]) -> None:
    for turn, numbers in enumerate(asked):
        at = turn % WORKERS
        addresses = {_addresses(number)[0]: number for number in numbers}
        found = await node.directories[at].join(addresses, f"?{node.epochs[at]}")
        for address, number in addresses.items():
            if f"={node.epochs[number % WORKERS]}" not in found[address]:
                raise RuntimeError("The directory does not know who holds an address.")


async def _take_over(node: _Node, numbers: Sequence[int]) -> None:
    """The last worker has ended: the others are entered for its sessions, and it is taken out."""
    dead, left = node.epochs[-1], node.workers[:-1]
    for at, number in enumerate(numbers):
        names = left[at % len(left)].names
        held, heard = (_runtime(number), *_addresses(number)), (_heard(number),)
        names.arrived(HOLDS, held)
        names.arrived(LISTENS, heard)
        names.taken(held, heard, dead)
        if at % _AT_ONCE == _AT_ONCE - 1:
            await _entered(left)
    await _entered(left)
    asked = {_addresses(number)[0] for number in numbers}
    found = await left[0].directory.members(Kind.NAME, asked)
    for address in asked:
        if not found[address] - {f"={dead}"}:
            raise RuntimeError("The directory does not know who has taken a session.")


async def _entered(workers: Sequence[Worker]) -> None:
    for each in workers:
        if (entered := each.names.entered()) is not None:
            await entered


class _Nobody:
    """A directory in which nobody stands."""

    async def join(self, names: Sequence[str], member: str) -> dict[str, set[str]]:
        return {name: set() for name in names}

    def release(self, kind: Kind, name: str, member: str) -> None: ...


def _never(epoch: str) -> bool:
    """No worker of this part ends."""
    return False


async def _asked_for(sessions: int, mix: str, draw: Callable[[random.Random, int], int]) -> str:
    """The share of the messages of one worker for which it has to ask who listens."""
    transport: Any = SimpleNamespace(me=SimpleNamespace(epoch="one"))
    directory: Any = _Nobody()
    table = RoutingTable()
    watchers, remotes = Watchers(table), RemoteSessions(table)
    told = Announcements(watchers, transport)
    own = OwnNames(directory, table, transport, watchers, told, remotes, _never, _never)
    interest = Interest(directory, table, transport, own, remotes)
    picks = random.Random(16)  # noqa: S311  (which addresses are sent to)
    asked = 0
    for number in range(2 * _MESSAGES):
        address = _heard(draw(picks, sessions))
        if not interest.hears(address):
            asked += number >= _MESSAGES  # the first half fills what is kept
            names = names_of(address)
            await interest.watch(names)
            for name in names:
                interest.know(name)
    share = asked / _MESSAGES
    return f"Messages to {mix} of {sessions:,}: who listens is asked for {share:.1%} of them."


def _own(picks: random.Random, sessions: int) -> int:
    return picks.randrange(sessions // WORKERS) * WORKERS


def _any(picks: random.Random, sessions: int) -> int:
    return picks.randrange(sessions)


def _zipf(picks: random.Random, sessions: int) -> int:
    """The n-th address as often as the first divided by n."""
    return min(sessions - 1, int(sessions ** picks.random()) - 1)


async def _timed(node: _Node, work: Awaitable[None], server: int, number: int) -> Sample:
    commands = await node.figure("stats", "total_commands_processed")
    began, used = time.perf_counter(), cpu_seconds(server)
    await work
    seconds = time.perf_counter() - began
    commands = await node.figure("stats", "total_commands_processed") - commands
    return {
        "rate": number / seconds,
        "seconds": seconds,
        "redis_cpu_us": (cpu_seconds(server) - used) / number * 1e6,
        "redis_commands": commands / number,
    }


def _runtime(number: int) -> str:
    return f"runtime://example.org/{uuid.UUID(int=number)}"


def _heard(number: int) -> str:
    return f"comm://example.org/{uuid.UUID(int=number)}/changes"


def _addresses(number: int) -> tuple[str, str]:
    first, second = (uuid.UUID(int=2 * number + each) for each in (0, 1))
    return f"hyperty://example.org/{first}", f"hyperty://example.org/{second}"
