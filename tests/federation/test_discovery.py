"""Where the stub of a domain is looked for, in which order, and what is not taken."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from msgnode.core.errors import BadGateway, GatewayTimeout, NotFound
from msgnode.federation import discovery
from msgnode.net.http import Answer, HttpClient, NoAnswer
from tests.certificates import certificate

B = "b.example"
PATH = "/.well-known/protocolstub/default"
LOOPBACK = [ipaddress.ip_network("127.0.0.0/8")]

pytestmark = pytest.mark.asyncio


class Catalogues:
    """Answers by URL, 404 for all others; which URLs were asked."""

    networks = ()

    def __init__(self, **_: Any) -> None:
        self.answers: dict[str, Answer | NoAnswer] = {}
        self.asked: list[str] = []

    async def get(self, url: str, headers: Any = None) -> Answer:
        self.asked.append(url)
        answer = self.answers.get(url, Answer(404, b""))
        if isinstance(answer, NoAnswer):
            raise answer
        return answer

    async def find(self, **more: Any) -> Any:
        return await discovery.find(self, B, **more)  # type: ignore[arg-type]


def described(url: str = f"wss://{B}/ws", **more: Any) -> Answer:
    package = {"encoding": "utf-8", "sourceCode": "export default class {}"}
    told = {"language": "javascript", "configuration": {"url": url}, "sourcePackage": package}
    return Answer(200, json.dumps({**told, **more}).encode())


async def test_case_3_a_catalogue_may_be_at_a_name_of_its_own() -> None:
    places = Catalogues()
    places.answers[f"https://catalogue.{B}{PATH}"] = described()
    assert (await places.find()).url == f"wss://{B}/ws"
    assert places.asked == [
        f"https://{B}{PATH}", f"https://{B}{PATH}.ps.json", f"https://catalogue.{B}{PATH}"
    ]  # fmt: skip


async def test_case_3_it_is_asked_too_where_the_domain_itself_does_not_answer() -> None:
    places = Catalogues()
    places.answers[f"https://{B}{PATH}"] = NoAnswer("It cannot be reached.")
    places.answers[f"https://catalogue.{B}{PATH}.ps.json"] = described(sourcePackage={})
    places.answers[f"https://catalogue.{B}{PATH}.ps.js"] = Answer(200, b"other")
    assert (await places.find()).source == "other"


async def test_case_4_a_domain_that_has_none_anywhere_is_not_found() -> None:
    with pytest.raises(NotFound):
        await Catalogues().find()


@pytest.mark.parametrize("status", [301, 302, 307, 308, 401, 500])
async def test_case_6_a_redirect_is_not_followed(status: int) -> None:
    places = Catalogues()
    places.answers[f"https://{B}{PATH}"] = Answer(status, b"")
    with pytest.raises(GatewayTimeout, match=str(status)):
        await places.find()
    assert all(B in url for url in places.asked)


@pytest.mark.parametrize(
    "url", ["wss://evil.example/ws", "ws://b.example/ws", "wss://b.example.evil.example/ws", ""]
)
async def test_case_9_a_stub_that_would_connect_elsewhere_is_refused(url: str) -> None:
    places = Catalogues()
    places.answers[f"https://{B}{PATH}"] = described(url)
    with pytest.raises(BadGateway, match="would connect to"):
        await places.find()


async def test_case_9_unless_the_operator_has_named_the_host() -> None:
    places = Catalogues()
    places.answers[f"https://{B}{PATH}"] = described("wss://node.other.example/ws")
    found = await places.find(hosts=frozenset({"node.other.example"}))
    assert found.url == "wss://node.other.example/ws"


@asynccontextmanager
async def untrusted(place: Path) -> AsyncIterator[tuple[HttpClient, int, list[bytes]]]:
    """A server whose certificate nobody has signed whom the node trusts, and what it has heard."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(place).both)
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1))
        writer.close()

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    http = HttpClient(LOOPBACK, 10.0, 1_000_000, resolve)
    try:
        yield http, server.sockets[0].getsockname()[1], heard
    finally:
        await http.close()
        server.close()


async def test_case_7_a_server_that_cannot_prove_its_name_is_not_asked(tmp_path: Path) -> None:
    async with untrusted(tmp_path) as (http, port, heard):
        with pytest.raises(GatewayTimeout, match="certificate"):
            await discovery.find(http, f"{B}:{port}")
    assert not any(heard), "not a word of the request was said"


async def test_case_5_a_domain_that_answers_slowly_takes_no_more_time_than_one_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Slow(Catalogues):
        async def get(self, url: str, headers: Any = None) -> Answer:
            self.asked.append(url)
            if len(self.asked) > 1:
                await asyncio.Event().wait()
            return Answer(404, b"")

    monkeypatch.setattr(discovery, "FIND_SECONDS", 0.05)
    places = Slow()
    async with asyncio.timeout(10):
        with pytest.raises(GatewayTimeout, match=r"0\.05 s in all"):
            await places.find()
    assert places.asked[:2] == [f"https://{B}{PATH}", f"https://{B}{PATH}.ps.json"]
