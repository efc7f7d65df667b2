"""HTTP requests of a stub: to the peer's hosts, over TLS where named, few, bounded, in text."""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from msgnode.core.back_off import BackOff
from msgnode.federation import sockets
from msgnode.federation.sockets import SocketLimits, StubSockets, tls_places
from msgnode.federation.states import SessionWatch
from msgnode.sandbox import pipe
from msgnode.sandbox.pipe import RequestWanted

from .sandboxes import acting, needs_deno, sandbox

pytestmark = pytest.mark.asyncio

SECONDS = 30.0
LOOPBACK = [ipaddress.ip_network("127.0.0.0/8")]


class Place:
    """The requests of a stub, an HTTP server of the peer, and what the stub was told."""

    def __init__(self, **limits: Any) -> None:
        self.told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.heads: list[str] = []
        self.answers: dict[str, bytes] = {}
        self.hangs = asyncio.Event()
        named = {"hosts": frozenset({"127.0.0.1"}), "networks": LOOPBACK, **limits}
        self.watch = SessionWatch()
        self.sockets = StubSockets(
            SocketLimits(**named), BackOff(0.01, 0.02), self._tell, self._ready, self.watch
        )

    def _tell(self, line: bytes) -> None:
        self.told.put_nowait(json.loads(line))

    async def _ready(self) -> None:
        """It takes everything."""

    async def serve(self) -> asyncio.Server:
        server = await asyncio.start_server(self._asked, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return server

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        path = head.split(" ")[1]
        if path == "/hangs":
            await self.hangs.wait()
        writer.write(self.answers.get(path, answer(b"ok")))
        await writer.drain()
        writer.close()

    def ask(self, number: int, url: str = "", **more: Any) -> None:
        wanted = {"http": number, "method": "GET", "url": url or self.url, **more}
        self.sockets.request(RequestWanted(**wanted))

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(SECONDS):
            return await self.told.get()


def answer(body: bytes, status: str = "200 OK", *lines: str) -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *lines]
    return "\r\n".join([*head, "", ""]).encode() + body


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    one = Place(max_frame=1_000)
    async with await one.serve():
        yield one
        one.hangs.set()
        await one.sockets.end()


async def test_a_request_is_answered_and_counts_as_an_open_connection(place: Place) -> None:
    place.answers["/a?b=1"] = answer("ä".encode(), "200 OK", "Content-Type: text/plain")
    headers = {"X-One": "1", "Cookie": "c", "Host": "other.example", "Messaging-Node": "us"}
    place.ask(1, f"{place.url}/a?b=1", method="POST", body="text", headers=headers)
    told = await place.next()
    assert told == {"op": "http", "http": 1, "status": 200, "type": "text/plain", "body": "ä"}
    (head,) = place.heads
    assert "X-One: 1" in head
    assert not any(word in head for word in ("Cookie", "other.example", "Messaging-Node"))
    assert (place.sockets.is_open, place.sockets.count, place.watch.is_new) == (True, 1, True)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://evil.example/", "no host of the peer"),
        ("https://user@127.0.0.1/", "must not name a user"),
        ("ws://127.0.0.1/", "must begin with https://"),
        ("file:///etc/passwd", "must begin with https://"),
    ],
)
async def test_where_no_socket_may_lead_no_request_does(place: Place, url: str, told: str) -> None:
    place.ask(1, url)
    assert told in (await place.next())["error"]
    assert place.sockets.refused == 1
    assert place.heads == []


async def test_without_tls_only_networks_are_reached_that_the_operator_has_named() -> None:
    one = Place(networks=())
    async with await one.serve():
        one.ask(1)
        assert "https://" in (await one.next())["error"]
        one.ask(2, one.url.replace("http:", "https:"))
        assert "does not connect" in (await one.next())["error"]
        assert one.heads == []
        await one.sockets.end()


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (answer(b"", "302 Found", "Location: https://evil.example/"), "redirect"),
        (answer(b"x" * 1_001), "more than 1000 bytes"),
        (answer(b"\xff\xfe"), "only text passes"),
        (b"nonsense\r\n\r\n", ""),
    ],
)
async def test_an_answer_that_is_no_answer_has_failed(place: Place, raw: bytes, told: str) -> None:
    place.answers["/x"] = raw
    place.ask(1, f"{place.url}/x")
    failed = await place.next()
    assert failed["status"] == 0
    assert told in failed["error"]
    assert not place.sockets.is_open
    assert place.sockets.last_error != ""
    place.ask(2, body="x" * 1_001, method="POST")
    assert "larger than 1000" in (await place.next())["error"]


async def test_a_stub_has_few_requests_at_a_time_and_may_give_one_up(place: Place) -> None:
    for number in range(1, sockets.MAX_REQUESTS + 2):
        place.ask(number, f"{place.url}/hangs")
    refused = await place.next()
    assert refused["http"] == sockets.MAX_REQUESTS + 1
    assert "under way" in refused["error"]
    place.sockets.requests.abort(1)
    place.ask(9)
    assert (await place.next())["http"] == 9


async def test_a_place_that_the_configuration_names_with_tls_is_reached_with_it() -> None:
    places = tls_places({"url": "https://B.example:9090/x"})
    one = Place(hosts=frozenset({"b.example"}), networks=(), tls_places=places)
    for url, is_taken in (("http://b.example:9090/poll", True), ("http://b.example/", False)):
        one.ask(1, url)
        told = await one.next()
        assert ("https://" not in told["error"]) is is_taken, told
    await one.sockets.end()


STUB = """
const said = (value) =>
  bus.postMessage({ type: "update", from: url, to: url + "/x", body: { value } });
(async () => {
  const answer = await fetch(config.url, { method: "post", body: "one", headers: { A: "1" } });
  said([answer.status, await answer.text(), answer.headers.get("content-type")]);
  const xhr = new XMLHttpRequest();
  xhr.open("GET", config.url);
  xhr.onload = () => said([xhr.status, xhr.responseText, xhr.getResponseHeader("Content-Type")]);
  xhr.onerror = () => said("failed");
  xhr.send();
  await fetch(config.url).catch((error) => said(error.message));
  const bytes = { method: "POST", body: new Uint8Array(2) };
  await fetch(config.url, bytes).catch((error) => said(error.message));
  said(typeof xhr.responseType);
})();
"""


@needs_deno
async def test_a_stub_sees_the_requests_of_a_browser() -> None:
    async with sandbox() as one:
        one.load(acting(STUB), url="https://b.example/")
        one.send(pipe.connect())
        first = await one.next(pipe.RequestWanted)
        sent = (first.method, first.url, first.body, first.headers)
        assert sent == ("POST", "https://b.example/", "one", {"a": "1"})
        one.send(pipe.http_answer(first.http, 200, "text/plain", "two"))
        assert (await one.message())["body"]["value"] == [200, "two", "text/plain"]
        polled, fetched = [await one.next(pipe.RequestWanted) for _ in range(2)]
        one.send(pipe.http_answer(polled.http, 200, "text/html", "three"))
        assert (await one.message())["body"]["value"] == [200, "three", "text/html"]
        one.send(pipe.http_failed(fetched.http, "no"))
        assert "no" in (await one.message())["body"]["value"]
        assert "Only text" in (await one.message())["body"]["value"]
        assert (await one.message())["body"]["value"] == "undefined"
