"""Workers count HTTP requests together in a real Redis, which may freeze or be full."""

from __future__ import annotations

import signal
from pathlib import Path
from time import monotonic

import pytest
import redis

from msgnode.core.http_limits import HttpLimits
from msgnode.redis.limits_storage import limits_storage
from tests.redis.servers import running


def worker(url: str, node: str = "node") -> HttpLimits:
    limits = HttpLimits()
    limits.share(limits_storage(url, node))
    return limits


def test_the_workers_of_a_node_count_together_and_other_nodes_apart(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        one, other, foreign = (worker(server.url, node) for node in ("node", "node", "other"))
        taken = [each.take("login", "192.0.2.1", 3) == 0 for each in (one, other, one, other)]
        assert taken == [True, True, True, False]
        assert 1 <= other.take("login", "192.0.2.1", 3) <= 120
        assert one.is_spent("login", "192.0.2.1", 3)
        assert not foreign.is_spent("login", "192.0.2.1", 3)
        keys = redis.Redis.from_url(server.url).keys()
        assert keys
        assert all(0 < redis.Redis.from_url(server.url).ttl(key) <= 120 for key in keys)


def test_a_redis_that_freezes_costs_one_request_a_moment_and_the_limit_still_holds(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as server:
        limits = worker(server.url)
        assert limits.take("login", "192.0.2.1", 2) == 0
        assert server.process is not None
        server.process.send_signal(signal.SIGSTOP)
        began = monotonic()
        try:
            taken = [limits.take("login", "192.0.2.1", 2) == 0 for _ in range(50)]
        finally:
            server.process.send_signal(signal.SIGCONT)
        assert sum(taken) == 2
        assert monotonic() - began < 20


def test_nobody_there_and_a_full_redis_are_no_reason_to_refuse(tmp_path: Path) -> None:
    assert worker("redis://127.0.0.1:1/0").take("login", "a", 1) == 0
    with running(tmp_path, "--maxmemory", "1", "--maxmemory-policy", "noeviction") as server:
        limits = worker(server.url)
        assert [limits.take("login", "a", 1) == 0 for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:secret@redis.example:6380/3",
        "rediss://redis.example/0",
        "unix:///run/redis.sock",
        "redis+sentinel://:secret@a.example:26379,b.example/main/2",
        "rediss+sentinel://a.example/main",
    ],
)
def test_every_url_of_a_redis_is_understood_and_connects_when_it_is_used(url: str) -> None:
    prefix = limits_storage(url, "a secret").key_prefix
    assert prefix.startswith("http-limits:")
    assert "secret" not in prefix
