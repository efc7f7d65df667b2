"""Where the workers of a node count HTTP requests together: the storage of `limits` on our Redis.

It blocks, so it is for the threads of views; one that meets a silent Redis loses TIMEOUT.
"""

from __future__ import annotations

from limits.storage import RedisStorage
from redis import ConnectionPool
from redis.sentinel import Sentinel, SentinelConnectionPool

from msgnode.core.digest import digest

from .url import parse

TIMEOUT = 0.5
"""Seconds for each step: to connect, and for an answer."""


def limits_storage(url: str, secret: str) -> RedisStorage:
    """The storage of one node; nothing is connected before it is used.

    Args:
        url: REDIS_URL.
        secret: what only processes of the node know; keeps its keys apart from other nodes' there.
    """
    limits = {"socket_timeout": TIMEOUT, "socket_connect_timeout": TIMEOUT}
    return RedisStorage(
        "redis://",
        connection_pool=_pool(url, limits),
        key_prefix=f"http-limits:{digest(secret)[:12]}",
        wrap_exceptions=True,
    )


def _pool(url: str, limits: dict[str, float]) -> ConnectionPool:
    parsed = parse(url)
    if not parsed.sentinels:
        return ConnectionPool.from_url(url, **limits)
    tls = {} if parsed.tls is None else {"ssl": True, **parsed.tls}
    login = {"password": parsed.password or None}
    return SentinelConnectionPool(
        parsed.service,
        Sentinel(parsed.sentinels, sentinel_kwargs={**limits, **tls, **login}),
        db=parsed.database,
        username=parsed.username or None,
        **login,
        **tls,
        **limits,
    )
