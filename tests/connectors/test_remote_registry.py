"""The connector to a registry elsewhere, against back-ends that misbehave: case 29 and its kin."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from django.db import OperationalError

from msgnode.connectors import remote_registry
from msgnode.connectors.global_registry import RemoteGlobalRegistry
from msgnode.connectors.registry_requests import request_of
from msgnode.connectors.remote_registry import RemoteRegistry
from msgnode.core.errors import BadGateway, Forbidden, GatewayTimeout, NodeError, TooMany
from msgnode.net.back_end import MAX_ANSWER, BackEnd
from msgnode.net.http import Answer, NoAnswer
from registry.api import Claimant

HYPERTY = "hyperty://d/1"
OWNER = Claimant("s1", "", ("runtime://d/r1", "hyperty-runtime://d/r1"))


class Remote:
    """A back-end that answers from a script; `seen` is what it was asked."""

    def __init__(self, *answers: Answer | Exception) -> None:
        self.seen: list[tuple[str, str, bytes]] = []
        self.news: list[tuple[str, str]] = []
        self.by: Claimant | None = None
        self._answers = list(answers)
        self.back_end = BackEnd("http://registry/base/", "out of reach", 1.0, 2, 4)
        self.back_end._client.request = self._answer  # type: ignore[method-assign, assignment]
        self.registry = RemoteRegistry(self.back_end, 408, self.news.extend)

    async def _answer(self, method: str, url: str, body: bytes | None, headers: Any) -> Answer:
        self.seen.append((method, url, body or b""))
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def ask(self, type_: str, **body: Any) -> dict[str, Any]:
        return await self.registry.carry_out(request_of(type_, body, "d"), self.by)


def said(code: int = 200, /, **body: Any) -> Answer:
    return Answer(code, msgspec.json.encode(body))


async def test_case_29_after_the_retries_it_is_out_of_reach() -> None:
    remote = Remote(*[NoAnswer("refused")] * 3)
    with pytest.raises(GatewayTimeout, match="out of reach"):
        await remote.ask("read", resource=HYPERTY)
    assert len(remote.seen) == 3


async def test_a_fault_of_transport_that_passes_is_not_noticed() -> None:
    remote = Remote(NoAnswer("slow"), said(hypertyID=HYPERTY))
    answer = await remote.ask("read", resource=HYPERTY)
    assert answer == {"code": 200, "value": {"hypertyID": HYPERTY}}


async def test_an_error_the_registry_answers_is_not_tried_again() -> None:
    remote = Remote(said(500, message="Internal"))
    answer = await remote.ask("read", resource=HYPERTY)
    assert (answer["code"], answer["description"]) == (500, "Internal")
    assert len(remote.seen) == 1


@pytest.mark.parametrize("content", [b"<html>", b"[1]", b"5", b""])
async def test_an_answer_that_is_none_is_a_bad_gateway(content: bytes) -> None:
    remote = Remote(Answer(200, content))
    with pytest.raises(BadGateway):
        await remote.ask("read", resource=HYPERTY)


@pytest.mark.parametrize(
    ("head", "piece", "error"),
    [
        ("Content-Length: 9999", b" ", GatewayTimeout),  # by drops
        ("Content-Length: 99999999999", b" " * 65536, BadGateway),
        ("Content-Encoding: gzip\r\nContent-Length: 99999", b"not gzip", BadGateway),
    ],
)
async def test_an_answer_that_never_ends_or_swells_takes_one_try_and_little_memory(
    head: str, piece: bytes, error: type[NodeError]
) -> None:
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode())
        with suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(piece)
                sent += len(piece)
                await writer.drain()
                await asyncio.sleep(0.05 if len(piece) == 1 else 0)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    back_end = BackEnd(
        f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "out of reach", 0.5, 0, 4
    )
    async with asyncio.timeout(30):
        with pytest.raises(error):
            await back_end.send("GET", "/x")
    assert sent < 4 * MAX_ANSWER
    await back_end.close()
    server.close()


async def test_an_error_without_json_keeps_its_code() -> None:
    answer = await Remote(Answer(404, b"<html>")).ask("update", resource=HYPERTY)
    assert (answer["code"], answer["description"]) == (404, "Not Found")


async def test_ids_are_sent_as_one_segment_below_the_base() -> None:
    remote = Remote(said(hypertyID=HYPERTY))
    await remote.ask("read", resource=HYPERTY)
    assert remote.seen[0][1] == "http://registry/base/hyperty/url/hyperty%3A%2F%2Fd%2F1"


async def test_an_update_that_changed_the_status_is_news() -> None:
    remote = Remote(said(statusChanged="true"), said(statusChanged="false"))
    for _ in range(2):
        await remote.ask("update", resource=HYPERTY, value={"status": "live"})
    assert remote.news == [(HYPERTY, "live")]


async def test_a_data_object_whose_status_changed_is_news() -> None:
    remote = Remote(said(status="disconnected"), said(), said(status="live"), said())
    for _ in range(2):
        await remote.ask("update", resource="comm://d/1")
    assert remote.news == [("comm://d/1", "live")]


async def test_what_the_feed_tells_is_news() -> None:
    remote = Remote(said(**{HYPERTY: {"status": "disconnected"}}), said(), said(503, message="no"))
    for _ in range(3):
        await remote.registry.poll()
    assert remote.news == [(HYPERTY, "disconnected")]


async def test_the_feed_is_read_on_after_names_that_cannot_be_and_a_database_that_was_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remote = Remote(said(**{HYPERTY: 1, "hyperty://d/\0": 1, "": 1, "x" * 601: 1}), said())
    tries = []
    heard = asyncio.Event()

    def news(ended: list[tuple[str, str]]) -> None:
        tries.append(ended)
        if len(tries) == 1:
            raise OperationalError("away")
        loop.call_soon_threadsafe(heard.set)

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(remote_registry, "POLL_SECONDS", 0)
    remote.registry._news = news
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        job = group.create_task(remote.registry.run())
        await heard.wait()
        assert not job.done()
        job.cancel()
    assert tries == [[(HYPERTY, "disconnected")]] * 2


async def test_the_end_of_a_runtime_disconnects_what_it_registered_here() -> None:
    remote = Remote(said(message="Hyperty created"), said(statusChanged="true"))
    value = {"url": HYPERTY, "user": "alice", "runtime": "runtime://d/r1"}
    await remote.ask("create", value=value)
    await remote.registry.runtimes_gone(["hyperty-runtime://d/r1"], {})
    assert remote.seen[1][2] == b'{"status":"disconnected"}'
    assert remote.news == [(HYPERTY, "disconnected")]
    await remote.registry.runtimes_gone(["hyperty-runtime://d/r1"], {})
    assert len(remote.seen) == 2


async def test_case_20_objects_of_a_user_are_those_its_hyperties_report() -> None:
    chat, other = {"url": "comm://d/1"}, {"url": "context://d/2"}
    found = {"hyperty://d/1": {}, "hyperty://d/2": {}}
    remote = Remote(said(**found), said(404, message="Not Found"), said(**{
        "comm://d/1": chat, "context://d/2": other,
    }))  # fmt: skip
    answer = await remote.ask("read", resource="/comm/user/user://d/alice")
    assert answer == {"code": 200, "value": {"comm://d/1": chat}}
    asked = [url.removeprefix("http://registry") for _, url, _ in remote.seen]
    assert asked == [
        "/base/hyperty/user/user%3A%2F%2Fd%2Falice",
        "/base/hyperty/dataobject/reporter/hyperty%3A%2F%2Fd%2F1",
        "/base/hyperty/dataobject/reporter/hyperty%3A%2F%2Fd%2F2",
    ]


async def test_objects_of_a_user_who_is_not_there_are_not_found() -> None:
    answer = await Remote(said(404)).ask("read", resource="/comm/user/user://d/alice")
    assert answer["code"] == 404


async def test_objects_of_a_user_with_too_many_hyperties_are_refused() -> None:
    found = {f"hyperty://d/{number}": {} for number in range(51)}
    with pytest.raises(TooMany):
        await Remote(said(**found)).ask("read", resource="/comm/user/user://d/alice")


async def test_only_objects_of_the_scheme_asked_for_are_passed_on() -> None:
    found = {"comm://d/1": {"url": "comm://d/1"}, "context://d/2": {"url": "context://d/2"}}
    remote = Remote(said(**found))
    criteria = {"reporter": HYPERTY, "scheme": "comm"}
    answer = await remote.ask("read", resource="/comm", criteria=criteria)
    assert list(answer["value"]) == ["comm://d/1"]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (said(404, Code=404, Description="Not found", Explanation="GUID not found", Value=""), 404),
        (said(200, Code=200), 502),
        (Answer(503, b""), 503),
    ],
)
async def test_a_refusal_of_the_global_registry_keeps_its_code(answer: Answer, code: int) -> None:
    registry = RemoteGlobalRegistry(Remote(answer).back_end)
    with pytest.raises(NodeError) as refusal:
        await registry.get("x" * 43)
    assert refusal.value.code == code


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries pause; what they do is the same without."""
    monkeypatch.setattr("msgnode.net.back_end._PAUSE", 0.0)


async def test_a_path_is_sent_unchanged_with_the_user_of_the_base_and_the_node_closes() -> None:
    heads: list[bytes] = []
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await reader.read()
        writer.close()
        over.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    back_end = BackEnd(f"http://ann:s%40crt@127.0.0.1:{port}/base/", "out of reach", 5.0, 0, 4)
    async with asyncio.timeout(30):
        assert (await back_end.send("GET", "/url/hyperty%3A%2F%2Fd%2F1?a=b%20c")).body == {}
        assert not over.is_set(), "the connection is kept for the next request"
        await back_end.close()
        await over.wait()
    request, _, fields = heads[0].partition(b"\r\n")
    assert request == b"GET /base/url/hyperty%3A%2F%2Fd%2F1?a=b%20c HTTP/1.1"
    assert b"Authorization: Basic YW5uOnNAY3J0\r\n" in fields, "ann:s@crt"
    server.close()


async def test_an_entry_of_another_runtime_is_looked_at_and_left_alone() -> None:
    for status in (200, 408):
        remote = Remote(said(status, runtime="runtime://d/other", userID="u"))
        remote.by = OWNER
        with pytest.raises(Forbidden):
            await remote.ask("update", resource=HYPERTY, value={"status": "live"})
        assert [each[0] for each in remote.seen] == ["GET"]


async def test_an_entry_of_ones_own_runtime_is_changed() -> None:
    record = said(runtime="hyperty-runtime://d/r1", userID="u")
    remote = Remote(record, said(statusChanged="false", message="Keep alive"))
    remote.by = OWNER
    assert await remote.ask("update", resource=HYPERTY) == {"code": 200}


async def test_who_holds_the_address_changes_its_entry() -> None:
    remote = Remote(said(runtime="runtime://d/other", userID="u"), said(message="ok"))
    remote.by = Claimant("s1", holds=True)
    assert await remote.ask("update", resource=HYPERTY) == {"code": 200}


async def test_an_entry_that_is_not_there_is_the_registrys_to_answer() -> None:
    remote = Remote(said(404, message="Not Found"), said(404, message="Not Found"))
    remote.by = OWNER
    assert (await remote.ask("update", resource=HYPERTY))["code"] == 404
