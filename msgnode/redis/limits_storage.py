"""The storage of `limits` on the node's Redis, where its workers count HTTP requests together.

It blocks, so it is for the threads of views; a silent Redis costs a thread TIMEOUT.
"""

from __future__ import annotations

from limits.storage import RedisClusterStorage, RedisStorage
from redis import ConnectionPool
from redis.sentinel import Sentinel, SentinelConnectionPool

from msgnode.core.digest import digest

from .url import RedisUrl, parse

TIMEOUT = 0.5
"""Seconds for each step: to connect, and for an answer."""


def limits_storage(url: str, secret: str) -> RedisStorage:
    """The storage of one node, connected when first used (a Redis Cluster at once).

    Args:
        url: REDIS_URL.
        secret: a secret of the node, which separates its keys from other nodes'.
    """
    limits = {"socket_timeout": TIMEOUT, "socket_connect_timeout": TIMEOUT}
    prefix = f"http-limits:{digest(secret)[:12]}"
    parsed = parse(url)
    if parsed.is_cluster:
        return _on_cluster(parsed, prefix, limits)
    return RedisStorage(
        "redis://",
        connection_pool=_pool(url, parsed, limits),
        key_prefix=prefix,
        wrap_exceptions=True,
    )


def _on_cluster(parsed: RedisUrl, prefix: str, limits: dict[str, float]) -> RedisStorage:
    hosts = ",".join(f"{host}:{port}" for host, port in parsed.seeds)
    login = {"username": parsed.username, "password": parsed.password}
    options = {name: value for name, value in login.items() if value} | parsed.tls_of_redis_py
    url = f"redis+cluster://{hosts}"
    return RedisClusterStorage(url, prefix, wrap_exceptions=True, **options, **limits)


def _pool(url: str, parsed: RedisUrl, limits: dict[str, float]) -> ConnectionPool:
    if not parsed.sentinels:
        return ConnectionPool.from_url(url, **limits)
    tls = parsed.tls_of_redis_py
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
