"""The directory on a real Redis: whatever is said, an entry names who claimed it last."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msgnode.redis.client import RedisClient
from msgnode.redis.directory import Directory, Kind
from msgnode.redis.faults import Full, Unreachable
from tests.node import eventually
from tests.redis.servers import RedisServer, running


@pytest.fixture
async def directory(redis_url: str) -> AsyncIterator[Directory]:
    directory = Directory(redis_url, uuid.uuid4().hex)
    await directory.start()
    yield directory
    await directory.close()


async def holder(directory: Directory, address: str) -> str | None:
    """The worker at which the address is at home."""
    return (await directory.find([address], [])).workers.get(address)


async def test_an_address_is_found_at_the_worker_of_its_session_wherever_that_moves(
    directory: Directory,
) -> None:
    directory.claim(Kind.ADDRESS, "hyperty://d/1", "session")
    assert await holder(directory, "hyperty://d/1") is None
    directory.claim(Kind.SESSION, "session", "one")
    assert await holder(directory, "hyperty://d/1") == "one"
    directory.claim(Kind.SESSION, "session", "other")
    assert await holder(directory, "hyperty://d/1") == "other"
    directory.release(Kind.SESSION, "session", "one")  # late: it is not there any more
    assert await holder(directory, "hyperty://d/1") == "other"
    directory.release(Kind.ADDRESS, "hyperty://d/1", "session")
    assert await holder(directory, "hyperty://d/1") is None


async def test_thousands_of_addresses_are_found_at_once(directory: Directory) -> None:
    addresses = [f"hyperty://d/{number}" for number in range(1700)]
    for address in addresses:
        directory.claim(Kind.ADDRESS, address, "session")
    directory.claim(Kind.SESSION, "session", "one")
    found = await directory.find([*addresses, "hyperty://d/nobody"], [])
    assert found.workers == dict.fromkeys(addresses, "one")


async def test_what_is_not_found_is_nobodys_only_once_all_have_entered_what_they_hold(
    directory: Directory, redis_url: str
) -> None:
    assert (await directory.find(["a"], [])).is_whole
    assert not (await directory.find(["a"], ["one", "other"])).is_whole
    directory.keep_filled("one")
    assert await directory.is_filled("one")
    assert not (await directory.find(["a"], ["one", "other"])).is_whole
    directory.keep_filled("other")
    assert (await directory.find(["a"], ["one", "other"])).is_whole
    operator = RedisClient(redis_url)
    await operator.start()
    await operator.execute("DEL", *await operator.execute("KEYS", "msgnode:*:f:one"))
    await operator.close()
    assert not (await directory.find(["a"], ["one", "other"])).is_whole


async def test_an_entry_that_nobody_says_again_goes(redis_url: str) -> None:
    directory = Directory(redis_url, uuid.uuid4().hex, expiry=0.2)
    await directory.start()
    directory.claim(Kind.SESSION, "session", "one")
    directory.claim(Kind.ADDRESS, "a", "session")
    assert await holder(directory, "a") == "one"
    async with asyncio.timeout(10):
        while await holder(directory, "a") is not None:
            await eventually()
    await directory.close()


async def test_what_is_said_while_redis_is_away_is_said_again_and_what_was_let_go_is_not(
    tmp_path: Path,
) -> None:
    server = RedisServer(tmp_path)
    server.start()
    directory = Directory(server.url, "node")
    connected = asyncio.Event()
    directory.on_connected = connected.set
    await directory.start()
    try:
        directory.claim(Kind.SESSION, "session", "one")
        assert directory.last is not None
        await directory.last
        assert directory.last is None
        server.stop()
        connected.clear()
        for address in ("kept", "let go", "moved"):
            directory.claim(Kind.ADDRESS, address, "session")
            directory.claim(Kind.RUNTIME, address, "session")
        directory.claim(Kind.SESSION, "session", "one")
        for kind in (Kind.ADDRESS, Kind.RUNTIME):
            directory.release(kind, "let go", "session")
            directory.forget(kind, "moved", "session")
        with pytest.raises(Unreachable):
            await directory.find(["kept"], [])
        server.start()
        await asyncio.wait_for(connected.wait(), 10)
        assert directory.is_failing
        await directory.say_again()
        names = ["kept", "let go", "moved"]
        found = await directory.find(names, [], [(Kind.RUNTIME, each) for each in names])
        assert found.workers == {"kept": "one"}
        assert found.runtimes == {"kept": {"one"}}
        assert not directory.is_failing
        assert directory.last is None
    finally:
        await directory.close()
        server.stop()


async def test_while_redis_is_full_what_is_claimed_is_owed(tmp_path: Path) -> None:
    with running(tmp_path, "--maxmemory", "16mb") as server:
        directory = Directory(server.url, "node")
        await directory.start()
        directory.claim(Kind.SESSION, "session", "one")
        operator = RedisClient(server.url)
        await operator.start()
        await operator.execute("CONFIG", "SET", "maxmemory", "1mb")
        directory.claim(Kind.ADDRESS, "a", "session")
        assert directory.last is not None
        with pytest.raises(Full):
            await directory.last
        assert directory.is_failing
        assert await holder(directory, "a") is None
        with pytest.raises(Full):
            await directory.say_again()
        assert directory.is_failing
        await operator.execute("CONFIG", "SET", "maxmemory", "16mb")
        await operator.close()
        await directory.say_again()
        assert await holder(directory, "a") == "one"
        assert not directory.is_failing
        await directory.close()


async def test_a_runtime_is_at_the_workers_of_all_its_sessions(directory: Directory) -> None:
    url = (Kind.RUNTIME, "runtime://d/1")
    for session, worker in (("first", "one"), ("second", "other"), ("ended", "")):
        directory.claim(*url, session)
        if worker:
            directory.claim(Kind.SESSION, session, worker)
    above = (Kind.BELOW, "runtime://d")
    directory.claim(*above, "first")
    found = await directory.find([], [], [url, above, (Kind.RUNTIME, "runtime://d/2")])
    assert found.runtimes == {"runtime://d/1": {"one", "other"}, "runtime://d": {"one"}}
    directory.release(*url, "first")
    directory.release(*url, "first")
    await directory.keep(*url, "second")
    assert (await directory.find([], [], [url])).runtimes == {"runtime://d/1": {"other"}}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["claim", "keep", "release"]),
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
def test_a_claim_overwrites_what_is_kept_does_not_and_only_the_holder_releases(
    redis_url: str, steps: list[tuple[str, str, str]]
) -> None:
    asyncio.run(_compare(redis_url, steps))


async def _compare(redis_url: str, steps: list[tuple[str, str, str]]) -> None:
    directory = Directory(redis_url, uuid.uuid4().hex)
    await directory.start()
    for session in ("one", "two", "three"):
        directory.claim(Kind.SESSION, session, session)
    expected: dict[str, str] = {}
    for step, address, session in steps:
        say: Any = getattr(directory, step)
        say(Kind.ADDRESS, address, session)
        if step == "claim":
            expected[address] = session
        elif step == "keep":
            expected.setdefault(address, session)
        elif expected.get(address) == session:
            del expected[address]
    assert (await directory.find(["x", "y"], [])).workers == expected
    await directory.close()
