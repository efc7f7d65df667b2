"""REDIS_URL: what it may name, and what is said of one that cannot be read."""

from __future__ import annotations

import pytest

from msgnode.redis.faults import Unsuitable
from msgnode.redis.url import celery_broker, parse


def test_a_server_is_named_with_login_and_database() -> None:
    url = parse("redis://node:p%40ss@example.org:6380/2")
    assert (url.host, url.port, url.database) == ("example.org", 6380, 2)
    assert (url.username, url.password, url.tls, url.sentinels) == ("node", "p@ss", None, ())


def test_what_is_not_named_is_as_redis_has_it() -> None:
    url = parse("redis://example.org")
    assert (url.port, url.database, url.username, url.password) == (6379, 0, "", "")
    assert parse("unix:///run/redis.sock").path == "/run/redis.sock"


def test_tls_is_asked_for_with_options_named_as_others_name_them() -> None:
    url = parse("rediss://example.org?ssl_cert_reqs=none")
    assert url.tls == {"ssl_cert_reqs": "none"}


def test_sentinels_are_named_with_the_service() -> None:
    url = parse("redis+sentinel://:secret@one:26380,two/mymaster/1")
    assert url.sentinels == (("one", 26380), ("two", 26379))
    assert (url.service, url.database, url.password) == ("mymaster", 1, "secret")


def test_servers_of_a_cluster_are_named() -> None:
    url = parse("rediss+cluster://node:secret@one:7000,two/?ssl_cert_reqs=none")
    assert url.is_cluster
    assert url.seeds == (("one", 7000), ("two", 6379))
    assert (url.username, url.password, url.tls) == ("node", "secret", {"ssl_cert_reqs": "none"})


def test_celery_is_told_of_the_same_redis_in_its_own_words() -> None:
    assert celery_broker("redis://one:1/0") == ("redis://one:1/0", {})
    broker, options = celery_broker("redis+sentinel://:secret@one:26380,two/mymaster/1")
    assert broker == "sentinel://:secret@one:26380/1;sentinel://:secret@two:26379/1"
    assert options == {"master_name": "mymaster"}


@pytest.mark.parametrize(
    "url",
    ["", "redis+cluster://", "redis+cluster://one/1", "localhost:6379", "http://one",
     "redis://one:port/0", "redis+sentinel://one", "redis+sentinel:///mymaster", "redis+sentinel://one/mymaster/none"],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(url: str) -> None:
    with pytest.raises(Unsuitable, match="REDIS_URL cannot be read"):
        parse(url)
