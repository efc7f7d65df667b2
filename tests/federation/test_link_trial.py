"""What an operator is told of a link that would not come about: `manage.py peers test-link`.

The other node's end is a real one, behind a server that the test runs.
"""

from __future__ import annotations

import ipaddress
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from msgnode.federation import link_keys, link_trial
from msgnode.federation import link_protocol as protocol
from msgnode.federation.link_keys import own_keys
from msgnode.federation.link_protocol import LinkFault
from msgnode.federation.link_socket import DialledSocket, LinkConnection, OwnNode
from msgnode.federation.link_trial import Finding
from msgnode.net.http import HttpClient
from tests.certificates import certificate
from tests.ports import free_port

from .test_node_links import A, B, End, trust

pytestmark = pytest.mark.asyncio
NETWORKS = [ipaddress.ip_network("127.0.0.0/8")]


class There:
    """The node of b.example, and the keys of it that count here."""

    def __init__(self, *secrets: str, own: tuple[str, ...] = ("secret",)) -> None:
        self.end = End(B, A, *secrets)
        self.here = End(A, B, *own)
        trust(self.end, self.here)
        trust(self.here, self.end)
        self.document = link_keys.document(self.end.wire.own.keys, B, time.time())
        self.refusal: LinkFault | None = None
        self.upgrade = HTTPStatus.SWITCHING_PROTOCOLS
        self.port = free_port()

    @asynccontextmanager
    async def running(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
        async with serve(
            self._serve, "127.0.0.1", self.port, process_request=self._answer, ssl=tls,
            subprotocols=[protocol.SUBPROTOCOL],  # type: ignore[list-item]
        ):  # fmt: skip
            yield

    def _answer(self, connection: ServerConnection, request: Request) -> Response | None:
        if request.path == f"/{link_keys.PATH}":
            return connection.respond(HTTPStatus.OK, json.dumps(self.document))
        if self.upgrade != HTTPStatus.SWITCHING_PROTOCOLS:
            return connection.respond(self.upgrade, "")
        return None

    async def _serve(self, server: ServerConnection) -> None:
        socket: Any = DialledSocket(server)  # type: ignore[arg-type]  # both have what it needs
        await socket.run(LinkConnection(socket, self.end.wire.own, self._find).received)

    def _find(self, domain: str) -> Any:
        if self.refusal is not None:
            raise self.refusal
        return self.end.wire

    async def tried(self, scheme: str = "http") -> dict[str, Finding]:
        own = OwnNode(A, self.here.wire.own.keys, 1024 * 1024, NETWORKS)
        http = HttpClient(NETWORKS, 5.0, link_keys.MAX_DOCUMENT)
        url, keys = f"{scheme}://127.0.0.1:{self.port}", self.here.wire.keys
        found = [each async for each in link_trial.tried(own, http, B, url, keys)]
        await http.close()
        return {each.what: each for each in found}


def wrong(found: dict[str, Finding]) -> dict[str, str]:
    return {each.what: each.text for each in found.values() if not each.is_good}


async def test_a_link_that_would_come_about_is_proved_at_both_ends_and_none_begins() -> None:
    there = There()
    async with there.running():
        found = await there.tried()
    assert not wrong(found)
    assert set(found) == {"document", "keys", "proof"}
    assert there.end.wire.current is None
    assert (there.end.new, there.end.faults) == ([], [])


async def test_case_l69_a_key_that_is_not_known_there_is_named() -> None:
    there = There()
    trust(there.end, there.here, own_keys(["another"], A))
    async with there.running():
        told = wrong(await there.tried())
    assert told.keys() == {"proof"}
    assert there.here.wire.own.keys[0].kid in told["proof"]
    assert "unknown or withdrawn at b.example" in told["proof"]


async def test_case_l69_a_key_that_is_known_there_though_it_is_an_earlier_one_is_told() -> None:
    there = There(own=("new", "old"))
    trust(there.end, there.here, own_keys(["old"], A))
    async with there.running():
        told = wrong(await there.tried())
    assert there.here.wire.own.keys[1].kid in told["proof"]
    assert "an earlier one" in told["proof"]


async def test_case_l69_keys_that_were_withdrawn_or_are_new_there_are_named() -> None:
    there = There("new", "old")
    new, old = there.end.wire.own.keys
    trust(there.here, there.end, [old])
    async with there.running():
        assert f"{new.kid} does not count here" in wrong(await there.tried())["keys"]
        there.document = link_keys.document([new], B, time.time())
        assert f"{old.kid} counts here, and is withdrawn" in wrong(await there.tried())["keys"]
        trust(there.here, there.end, [])
        told = wrong(await there.tried())
    assert told.keys() == {"keys"}
    assert "approve b.example" in told["keys"]


async def test_case_l69_a_key_there_that_is_not_the_one_it_names_is_found() -> None:
    there = There()
    [key], [other] = there.end.wire.own.keys, own_keys(["another"], B)
    there.end.wire.own = OwnNode(B, [key._replace(private=other.private)], 1024 * 1024)
    async with there.running():
        assert "the proof is not by the key" in wrong(await there.tried())["proof"]


async def test_what_was_not_approved_there_is_told_in_the_words_of_that_node() -> None:
    there = There()
    there.refusal = LinkFault(protocol.NOT_ALLOWED, f"{A} is no peer of {B}")
    async with there.running():
        assert wrong(await there.tried())["proof"] == f"not allowed: {A} is no peer of {B}"


@pytest.mark.parametrize(
    ("change", "words"),
    [({"versions": [2, 3]}, "versions"), ({"domain": "c.example"}, "c.example"),
     ({"valid_until": 1}, "valid until"), ({"keys": []}, "keys")],
)  # fmt: skip
async def test_case_l69_a_document_that_cannot_be_used_is_told(
    change: dict[str, Any], words: str
) -> None:
    there = There()
    keys = there.end.wire.own.keys
    rest = {k: v for k, v in there.document.items() if k != "signatures"} | change
    signed = link_keys._signed(rest)
    there.document = {**rest, "signatures": {each.kid: each.sign(signed) for each in keys}}
    async with there.running():
        assert words in wrong(await there.tried())["document"]


async def test_a_port_a_certificate_and_a_proxy_in_the_way_are_told(tmp_path: Path) -> None:
    there = There()
    told = wrong(await there.tried())
    assert str(there.port) in told["document"]
    assert "Connect call failed" in told["proof"]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(tmp_path).both)
    async with there.running(context):
        told = wrong(await there.tried("https"))
    assert all("certificate verify failed" in told[each] for each in ("document", "proof"))
    there.upgrade = HTTPStatus.UPGRADE_REQUIRED
    async with there.running():
        told = wrong(await there.tried())
    assert told.keys() == {"proof"}
    assert "426" in told["proof"]
