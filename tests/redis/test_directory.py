"""The directory on a real Redis: what is in a set is what was said last."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msgnode.redis.client import RedisClient
from msgnode.redis.directory import Directory, Kind
from msgnode.redis.faults import Full, Unreachable
from tests.node import eventually
from tests.redis.servers import RedisServer, running

NAME = "hyperty://d/1"


@pytest.fixture
async def directory(redis_url: str) -> AsyncIterator[Directory]:
    directory = Directory(redis_url, uuid.uuid4().hex)
    await directory.start()
    yield directory
    await directory.close()


async def there(directory: Directory, name: str = NAME) -> set[str]:
    return (await directory.members(Kind.NAME, [name])).get(name, set())


async def test_of_two_that_join_a_name_the_later_is_told_of_the_earlier(
    directory: Directory,
) -> None:
    assert await directory.join([NAME], "one") == {NAME: {"one"}}
    assert await directory.join([NAME, "b"], "two") == {NAME: {"one", "two"}, "b": {"two"}}
    directory.release(Kind.NAME, NAME, "one")
    directory.release(Kind.NAME, NAME, "somebody who is not there")
    assert await there(directory) == {"two"}


async def test_thousands_of_names_are_joined_and_found_at_once(directory: Directory) -> None:
    names = [f"hyperty://d/{number}" for number in range(1700)]
    assert await directory.join(names, "one") == dict.fromkeys(names, {"one"})
    found = await directory.members(Kind.NAME, [*names, "hyperty://d/nobody"])
    assert found == dict.fromkeys(names, {"one"})


async def test_what_is_not_found_is_nobodys_only_once_all_have_entered_what_they_have(
    directory: Directory, redis_url: str
) -> None:
    assert await directory.are_filled([])
    assert not await directory.are_filled(["one", "other"])
    await directory.keep_filled("one")
    assert await directory.are_filled(["one"])
    assert not await directory.are_filled(["one", "other"])
    await directory.keep_filled("other")
    assert await directory.are_filled(["one", "other"])
    operator = RedisClient(redis_url)
    await operator.start()
    await operator.execute("DEL", *await operator.execute("KEYS", "msgnode:*:f:one"))
    await operator.close()
    assert not await directory.are_filled(["one", "other"])


async def test_an_entry_that_nobody_says_again_goes(redis_url: str) -> None:
    directory = Directory(redis_url, uuid.uuid4().hex, expiry=0.2)
    await directory.start()
    directory.claim(Kind.NAME, NAME, "one")
    assert await there(directory) == {"one"}
    async with asyncio.timeout(10):
        while await there(directory):
            await eventually()
    await directory.close()


async def test_what_is_said_while_redis_is_away_is_said_again_and_what_was_let_go_is_not(
    tmp_path: Path,
) -> None:
    server = RedisServer(tmp_path)
    server.start()
    directory = Directory(server.url, "node")
    connected = asyncio.Event()
    directory.on_connected.append(connected.set)
    await directory.start()
    try:
        directory.claim(Kind.NAME, "left", "one")
        assert await there(directory, "left")
        server.stop()
        connected.clear()
        for name in ("kept", "let go"):
            directory.claim(Kind.NAME, name, "one")
        directory.release(Kind.NAME, "let go", "one")
        directory.release(Kind.NAME, "kept", "one")
        directory.claim(Kind.NAME, "kept", "one")
        with pytest.raises(Unreachable):
            await directory.join(["joined"], "one")
        server.start()
        await asyncio.wait_for(connected.wait(), 10)
        assert directory.is_failing
        await directory.say_again()
        found = await directory.members(Kind.NAME, ["kept", "let go", "joined"])
        assert found == {"kept": {"one"}}
        assert not directory.is_failing
    finally:
        await directory.close()
        server.stop()


async def test_while_redis_is_full_what_is_claimed_is_owed_and_what_joins_is_told(
    tmp_path: Path,
) -> None:
    with running(tmp_path, "--maxmemory", "16mb") as server:
        directory = Directory(server.url, "node")
        await directory.start()
        operator = RedisClient(server.url)
        await operator.start()
        await operator.execute("CONFIG", "SET", "maxmemory", "1")  # byte: full, whatever it holds
        directory.claim(Kind.NAME, NAME, "one")
        with pytest.raises(Full):
            await directory.join(["b"], "one")
        assert directory.is_failing
        assert not await there(directory)
        await operator.execute("CONFIG", "SET", "maxmemory", "16mb")
        await operator.close()
        await directory.say_again()
        assert await there(directory) == {"one"}
        assert not directory.is_failing
        await directory.close()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["claim", "join", "release"]),
        st.sampled_from(["x", "y"]),
        st.sampled_from(["one", "two", "three"]),
    ),
    max_size=25,
)


@given(STEPS)
@settings(
    max_examples=settings().max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_each_stands_for_itself_whatever_is_said(
    redis_url: str, steps: list[tuple[str, str, str]]
) -> None:
    asyncio.run(_compare(redis_url, steps))


async def _compare(redis_url: str, steps: list[tuple[str, str, str]]) -> None:
    directory = Directory(redis_url, uuid.uuid4().hex)
    await directory.start()
    expected: dict[str, set[str]] = {"x": set(), "y": set()}
    for step, name, member in steps:
        if step == "release":
            directory.release(Kind.NAME, name, member)
            expected[name].discard(member)
            continue
        expected[name].add(member)
        if step == "claim":
            directory.claim(Kind.NAME, name, member)
        else:
            assert await directory.join([name], member) == {name: expected[name]}
    found = await directory.members(Kind.NAME, ["x", "y"])
    assert found == {name: members for name, members in expected.items() if members}
    await directory.close()
