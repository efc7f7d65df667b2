"""Which master of a Redis Cluster has which keys."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot

from .connection import Part
from .faults import Unreachable
from .url import RedisUrl


class Slots(NamedTuple):
    """The slots of keys from `first` on, and the master that has them."""

    first: int
    host: str
    port: int


async def slots_of(url: RedisUrl, patience: float) -> list[Slots]:
    """Which master has which slots, by the first server that says so.

    Raises:
        Unreachable: none does.
    """
    why = "it has no servers"
    for host, port in url.seeds:
        client = redis.asyncio.Redis(
            host=host,
            port=port,
            username=url.username or None,
            password=url.password or None,
            socket_timeout=patience / 4,
            socket_connect_timeout=patience / 4,
            retry=Retry(NoBackoff(), 0),
            **url.tls_of_redis_py,
        )
        try:
            said = await client.execute_command("CLUSTER SLOTS")
            ranges = [Slots(int(first), *_place(master, host)) for first, _, master, *_ in said]
            if ranges:
                return sorted(ranges)
        except redis.RedisError as error:
            why = str(error)
        finally:
            await client.aclose()
    raise Unreachable(f"The Redis Cluster cannot be asked: {why}")


def owner(slots: Sequence[Slots], key: Part) -> tuple[str, int]:
    """Where the master is that has a key."""
    name = key if isinstance(key, bytes) else str(key).encode()
    _, host, port = slots[bisect_right(slots, key_slot(name), key=lambda each: each.first) - 1]
    return host, port


def _place(master: Sequence[Any], asked: str) -> tuple[str, int]:
    """A server that does not know its own name is the one that was asked."""
    return (master[0] or asked.encode()).decode(), int(master[1])
