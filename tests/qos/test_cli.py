"""coturn's command line interface, as it is and as nobody wishes it: frozen, flooding, gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from time import process_time

import pytest

from msgnode.qos import turn_servers
from msgnode.qos.turn_servers import CliFault, Running, connected
from msgnode.qos.turn_state import Visit

PASSWORD = "secret of the command line"
ONE = "\r\n    1) id=000000000000000003, user <17:abc>:\r\n      realm: localhost\r\n"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def served(serve: Serve) -> AsyncIterator[str]:
    writers: list[asyncio.StreamWriter] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with suppress(ConnectionError, asyncio.CancelledError):
            await serve(reader, writer)

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        for writer in writers:
            writer.transport.abort()
        server.close()


def like_coturn(total: int = 1) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"TURN Server\r\nEnter password: \r\n")
        assert (await reader.readline()).strip().decode() == PASSWORD
        writer.write(b"> ")
        while await reader.readline():
            writer.write(f"{ONE}\r\n  Total sessions: {total}\r\n\r\n> ".encode())

    return serve


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_servers, "STEP_SECONDS", 1.0)


async def test_sessions_are_listed_and_a_short_list_is_known_for_one() -> None:
    async with served(like_coturn()) as place, connected(place, PASSWORD) as cli:
        listing = await cli.sessions()
        assert listing.sessions == [Running("000000000000000003", "17:abc")]
        assert listing.is_whole
        assert (await cli.sessions("18:other")).sessions == []
        await cli.cancel("000000000000000003")
    async with served(like_coturn(total=2)) as place, connected(place, PASSWORD) as cli:
        assert not (await cli.sessions()).is_whole


async def test_one_that_never_answers_is_given_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with served(silent) as place:
        with pytest.raises(CliFault, match="does not answer"):
            async with connected(place, PASSWORD):
                pass


async def test_one_that_floods_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_servers, "MAX_BYTES", 300_000)

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async with served(flood) as place:
        with pytest.raises(CliFault, match="says too much"):
            async with connected(place, PASSWORD):
                pass


@pytest.mark.parametrize("total", ["9" * 5000, "none", "-1"])
async def test_a_visit_outlives_numbers_that_are_none(total: str) -> None:
    async def lying(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"Enter password: \r\n")
        await reader.readline()
        writer.write(b"> ")
        while await reader.readline():
            writer.write(f"{ONE}\r\n  Total sessions: {total}\r\n\r\n> ".encode())

    async with served(lying) as place:
        visit = Visit(1, "t", [], place, PASSWORD, {"r": ["17:abc"]}, is_polled=True)
        found = await turn_servers._visit(visit)
    assert (found.is_up, found.cut) == (False, [])
    assert "does not list sessions" in found.fault


async def test_a_port_that_cannot_be_is_out_of_reach() -> None:
    urls = ["turn:127.0.0.1:99999?transport=udp", "turn:127.0.0.1:99999?transport=tcp"]
    visit = Visit(1, "t", urls, "127.0.0.1:99999", PASSWORD, {}, is_polled=True)
    found = await turn_servers._visit(visit)
    assert not found.is_up
    assert "out of reach" in found.fault


def test_a_list_made_to_be_slow_is_read_at_once() -> None:
    text = "id=1, user <" * 400_000
    began = process_time()
    assert turn_servers._SESSION.findall(text) == []
    assert process_time() - began < 0.5  # with a name of "<" it were 1 s and more


async def test_one_that_hangs_up_or_is_not_there_is_named() -> None:
    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with served(rude) as place:
        with pytest.raises(CliFault):
            async with connected(place, PASSWORD):
                pass
    with pytest.raises(CliFault, match="out of reach"):
        async with connected("127.0.0.1:1", PASSWORD):
            pass


async def test_a_visit_ends_in_time_and_says_the_fault_but_never_the_password() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with served(silent) as place:
        visit = Visit(1, "t", [], place, PASSWORD, {"r": ["17:abc"]}, is_polled=True)
        found = await turn_servers._visit(visit)
    assert (found.is_up, found.cut) == (False, [])
    assert "does not answer" in found.fault
    assert PASSWORD not in repr(found)


async def test_what_nothing_runs_for_is_cut_and_what_runs_is_tried_again() -> None:
    async with served(like_coturn()) as place:
        cuts = {"gone": ["18:gone"], "runs": ["17:abc"]}
        visit = Visit(1, "t", [], place, PASSWORD, cuts, is_polled=True)
        found = await turn_servers._visit(visit)
    assert found.cut == ["gone"]
    assert found.users == ["17:abc"]


async def test_what_a_server_leaves_out_of_its_list_is_not_taken_for_cut() -> None:
    async with served(like_coturn(total=2)) as place:
        visit = Visit(1, "t", [], place, PASSWORD, {"r": ["18:hidden"]}, is_polled=True)
        found = await turn_servers._visit(visit)
    assert found.cut == []
    assert "some of its sessions only" in found.fault


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("turn:a.example", ("a.example", 3478, True)),
        ("turn:a.example:80?transport=tcp", ("a.example", 80, False)),
        ("turns:a.example?transport=tcp", ("a.example", 5349, False)),
        ("turn:[::1]:99?transport=udp", ("::1", 99, True)),
        ("http://a.example", None),
    ],
)
def test_turn_urls_are_read(url: str, place: tuple[str, int, bool] | None) -> None:
    assert turn_servers.place_of(url) == place
