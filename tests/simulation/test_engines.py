"""The simulated Redis and the real one answer the same commands, drawn by chance, alike."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from msgnode.redis.client import RedisClient
from msgnode.redis.faults import RedisFault
from tests.simulation.redis_server import RedisServer
from tests.simulation.world import Machine, World

NAMES = ("a", "b", "c")


def script(seed: int, prefix: str, number: int = 300) -> list[tuple[bytes | int, ...]]:
    """Commands as the node sends them, on few keys, so that kinds of values meet."""
    chance = random.Random(seed)
    key = lambda: f"{prefix}{chance.choice(NAMES)}".encode()  # noqa: E731
    member = lambda: chance.choice((b"x", b"y", b"z"))  # noqa: E731
    kinds: list[Callable[[], tuple[bytes | int, ...]]] = [
        lambda: (b"SADD", key(), member()),
        lambda: (b"SREM", key(), member()),
        lambda: (b"SMEMBERS", key()),
        lambda: (b"SET", key(), member(), b"PX", 60_000),
        lambda: (b"GET", key()),
        lambda: (b"MGET", key(), key()),
        lambda: (b"DEL", key()),
        lambda: (b"PEXPIRE", key(), chance.choice((60_000, 0))),
        lambda: (b"XADD", key(), b"*", b"m", member()),
        lambda: (b"XADD", key(), b"NOMKSTREAM", b"*", b"m", member()),
        lambda: (b"XREAD", b"COUNT", 2, b"BLOCK", 1, b"STREAMS", key(), b"0-0"),
        lambda: (b"XTRIM", key(), b"MINID", b"9999999999999-0"),
        lambda: (b"PUBLISH", key(), member()),
    ]
    return [chance.choice(kinds)() for _ in range(number)]


async def answers(url: str, commands: list[tuple[bytes | int, ...]], prefix: str) -> list[Any]:
    """What the commands are answered, and what is pushed."""
    found: list[Any] = []
    client = RedisClient(url, on_push=lambda pushed: found.append(("pushed", *pushed)))
    await client.start()
    client.subscribe(b"SUBSCRIBE", f"{prefix}a".encode())
    for command in commands:
        try:
            found.append((command[0], await client.execute(*command)))
        except RedisFault as fault:
            found.append((command[0], str(fault)))
    client.subscribe(b"UNSUBSCRIBE", f"{prefix}a".encode())
    found.append(await client.execute(b"DEL", *(f"{prefix}{each}" for each in NAMES)))
    await client.close()
    return [_without_ids(each, prefix) for each in found]


def _without_ids(answer: Any, prefix: str) -> Any:
    """An answer in words; the ids of a stream are the server's own, and sets have no order."""
    if isinstance(answer, tuple) and answer[0] == b"SMEMBERS" and not isinstance(answer[1], str):
        return answer[0], sorted(answer[1])
    return re.sub(r"\d+-\d+", "id", repr(answer)).replace(prefix, "")


@pytest.mark.parametrize("seed", range(3))
async def test_the_simulated_redis_answers_as_the_real_one(redis_url: str, seed: int) -> None:
    prefix = f"simulated-{seed}:"
    commands = script(seed, prefix)
    real = await answers(redis_url, commands, prefix)
    world = World(seed)
    machine = Machine(world, 1, "host", 0.0, 1.0)
    machine.network = RedisServer(world).connect
    told: list[list[Any]] = []

    async def ask() -> None:
        told.append(await answers("redis://simulated", commands, prefix))

    running = asyncio.get_running_loop()
    asyncio._set_running_loop(None)
    try:
        with machine:
            task = machine.create_task(ask())
        world.run(60.0)
    finally:
        asyncio._set_running_loop(running)
    task.result()
    assert told[0] == real
