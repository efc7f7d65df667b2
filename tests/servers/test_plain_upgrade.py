"""Requests for a WebSocket: plain ones are read as the libraries would, others left to them."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.testing import StringTransport

from msgnode.servers.daphne import NodeFactory
from msgnode.servers.plain_upgrade import plain_upgrade

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ANSWER = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # of this key: RFC 6455, 1.3
PLAIN = {
    "Host": "node.example:8080",
    "Upgrade": "websocket",
    "Connection": "keep-alive, Upgrade",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Version": "13",
}


def request(line: str = "GET /ws HTTP/1.1", **changed: str | None) -> bytes:
    """A request in which headers are others; None leaves one out."""
    headers = PLAIN | {name.replace("_", "-"): value for name, value in changed.items()}
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    return "\r\n".join([line, *lines, "", ""]).encode("latin1")


class _Transport(StringTransport):
    def __init__(self) -> None:
        super().__init__()
        self.client = ("192.0.2.1", 4711)
        self.socket = self
        self.dataBuffer = self._tempDataBuffer = b""
        self.offset = self._tempDataLen = 0
        self.is_new = True

    def getsockname(self) -> tuple[str, int]:
        return "192.0.2.2", 80

    def send(self, data: bytes) -> int:
        self.write(data)
        return len(data)

    def unregisterProducer(self) -> None:  # noqa: N802 (Twisted's name)
        pass

    def stopReading(self) -> None:  # noqa: N802 (Twisted's name)
        pass

    def setTcpNoDelay(self, enabled: bool) -> None:  # noqa: N802 (Twisted's name)
        pass


class _Link:
    awaiting: tuple[Any, ...] = ()
    bytes_behind = 0
    take_corked, closing, closed = bytes, bool, bool


class _Server:
    """What Daphne's server is to a protocol; keeps the scope of the application."""

    root_path = ""
    proxy_forwarded_address_header = None
    ping_interval = 1e9

    def __init__(self) -> None:
        self.scopes: list[dict[str, Any]] = []
        self.connections: dict[Any, Any] = {}

    def protocol_connected(self, protocol: Any) -> None:
        self.connections[protocol] = {}

    def protocol_disconnected(self, protocol: Any) -> None:
        self.connections.pop(protocol, None)

    def log_action(self, *_: Any) -> None:
        pass

    def create_application(self, protocol: Any, scope: dict[str, Any]) -> Any:
        protocol.link = _Link()
        self.scopes.append(scope)
        return SimpleNamespace(put_nowait=lambda _: None)


def _opened(data: bytes, *, plainly: bool) -> tuple[_Server, Any, _Transport]:
    """What becomes of a request that the node reads, or the libraries."""
    server, transport = _Server(), _Transport()
    protocol: Any = NodeFactory(server, server="").buildProtocol(None)
    asked = plain_upgrade(data)
    if plainly:
        assert asked is not None
        protocol.upgrade_plainly(transport, asked)
    else:
        target = data.split(b" ")[1]
        protocol._raw_query_string = target.partition(b"?")[2]
        transport.getPeer = lambda: SimpleNamespace(type="TCP", host="192.0.2.1", port=4711)
        transport.getHost = lambda: SimpleNamespace(type="TCP", host="192.0.2.2", port=80)
        protocol.makeConnection(transport)
        protocol.dataReceived(data)
    return server, protocol, transport


SHAPES: tuple[dict[str, Any], ...] = (
    {},
    {"line": "GET / HTTP/1.1"},
    {"line": "GET /stub/connect?runtimeURL=runtime://a/b&x=%20%22 HTTP/1.1"},
    {"line": "GET /ws? HTTP/1.1"},
    {"Host": "localhost", "Connection": "upgrade", "Upgrade": "WebSocket"},
    {"Origin": "https://app.example", "Sec_WebSocket_Extensions": "permessage-deflate"},
    {"Sec_WebSocket_Extensions": "permessage-deflate; client_max_window_bits"},
    {"Sec_WebSocket_Protocol": "msgnode, bearer.a-b_c.d"},
    {"Authorization": "Bearer x", "X-Forwarded-For": "198.51.100.7, 198.51.100.8", "Cookie": ""},
    {"User-Agent": "  two words  "},
)


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
@pytest.mark.asyncio
async def test_the_application_and_the_client_are_told_what_the_libraries_tell_them(
    shape: dict[str, Any],
) -> None:
    data = request(**shape)
    plain, reference = (_opened(data, plainly=plainly) for plainly in (True, False))
    assert plain[0].scopes == reference[0].scopes
    for _, protocol, transport in (plain, reference):
        subprotocols = plain[0].scopes[0]["subprotocols"]
        accepted = {"type": "websocket.accept", "subprotocol": next(iter(subprotocols), None)}
        protocol.handle_reply(accepted)
        assert protocol.state == protocol.STATE_OPEN
        assert ANSWER in transport.value()
        assert not hasattr(protocol, "handshake_deferred")
    said = [sorted(transport.value().split(b"\r\n")) for _, _, transport in (plain, reference)]
    assert said[0] == said[1]


@pytest.mark.asyncio
async def test_a_plain_request_that_the_application_refuses_is_answered_as_ever() -> None:
    said = []
    for plainly in (True, False):
        _, protocol, transport = _opened(request(), plainly=plainly)
        protocol.handle_reply({"type": "websocket.close", "code": 4403})
        said.append(transport.value())
        assert protocol.state == protocol.STATE_CLOSED
    assert said[0] == said[1]
    assert said[0].startswith(b"HTTP/1.1 403 ")


FRAMES = (
    b"\x81\x82abcd\x09\x0a",  # a text
    b"\x01\x81abcd\x09",  # one in fragments, with a ping between
    b"\x89\x81abcd\x11",
    b"\x80\x81abcd\x08",
    b"\x82\x81abcd\x08",  # a binary one
    b"\x8a\x80abcd",
    b"\x88\x82abcd\x62\x8a",  # a close
)


def _note(told: list[Any], *said: Any) -> None:
    told.append(said)


@pytest.mark.parametrize("is_early", [True, False])
@pytest.mark.asyncio
async def test_frames_are_read_as_after_a_request_that_the_libraries_read(is_early: bool) -> None:
    """Those that come behind the request wait for its answer."""
    heard, said = [], []
    for plainly in (True, False):
        early, later = (b"".join(FRAMES), b"") if is_early else (b"", b"".join(FRAMES))
        _, protocol, transport = _opened(request() + early * plainly, plainly=plainly)
        if not plainly:
            protocol.dataReceived(early)
        assert protocol.data == early
        told: list[Any] = []
        for name in ("onMessage", "onPong", "onClose"):
            setattr(protocol, name, partial(_note, told, name))
        protocol.handle_reply({"type": "websocket.accept"})
        protocol.dataReceived(later)
        heard.append(told)
        said.append(transport.value().partition(b"\r\n\r\n")[2])
    assert heard[0] == heard[1]
    assert [each[1] for each in heard[0][:3]] == [b"hh", b"hi", b"i"]
    assert said[0] == said[1] != b""


LEFT: tuple[bytes, ...] = (
    b"",
    b"\r\n\r\n",
    request()[:-1],  # not all of it
    request("POST /ws HTTP/1.1"),
    request("GET /ws HTTP/1.0"),
    request("GET //host/ws HTTP/1.1"),
    request("GET http://host/ws HTTP/1.1"),
    request("GET /w%73 HTTP/1.1"),
    request("GET /ws;a HTTP/1.1"),
    request("GET /ws#a HTTP/1.1"),
    request("GET /ws?a#b HTTP/1.1"),
    request("GET  /ws HTTP/1.1"),
    request("get /ws HTTP/1.1"),
    request("\r\nGET /ws HTTP/1.1"),
    *(request(**{name.replace("-", "_"): None}) for name in PLAIN),
    request(Host="a:b"),
    request(Host="a, b"),
    request(Upgrade="h2c"),
    request(Connection="close"),
    request(Sec_WebSocket_Version="8"),
    request(Sec_WebSocket_Key="short"),
    request(Sec_WebSocket_Key=f"{KEY[:-2]}Q="),
    request(Sec_WebSocket_Protocol="a, a"),
    request(Sec_WebSocket_Protocol=""),
    request(Sec_WebSocket_Protocol="a%2Cb"),
    request(Sec_WebSocket_Protocol="\xe9"),
    request(Sec_WebSocket_Extensions="permessage-deflate; client_max_window_bits=99"),
    request(Origin="null"),
    request(Origin="app"),
    request(Content_Length="1"),
    request(Content_Length="0"),
    request(Transfer_Encoding="chunked"),
    request(Expect="100-continue"),
    request(Daphne_Root_Path="/root"),
    request(X_Long="x" * 9000),
    request(X_Other="\xe9"),
    request(X_Other="a\tb"),
    request(X_Other="a\r\n b"),
    request(X_Other="a\rb"),
    request(X_Other="a\nX-More: b"),
    request(X_Other="a\x00b"),
    request(X_Other="a\r\nx-other: b"),
    request(X_Other="a\r\nX_Score: b"),
    request(X_Other="a\r\nX-Space : b"),
    request(X_Other="a\r\nnothing"),
)


@pytest.mark.parametrize("data", LEFT, ids=lambda data: data[-60:])
def test_whatever_has_a_fault_or_is_rare_is_left_to_the_libraries(data: bytes) -> None:
    assert plain_upgrade(request()) is not None
    assert plain_upgrade(data) is None


@given(st.data())
def test_a_byte_that_is_another_makes_nothing_plain_that_the_libraries_refuse(data: Any) -> None:
    whole = request(Origin="https://app.example", Sec_WebSocket_Protocol="a, b")
    at = data.draw(st.integers(0, len(whole) - 1))
    with_one = whole[:at] + data.draw(st.binary(max_size=2)) + whole[at + 1 :]
    asked = plain_upgrade(with_one)
    if asked is None:
        return
    scopes = asyncio.run(_scopes(with_one))
    assert scopes[0] == scopes[1]


async def _scopes(data: bytes) -> list[list[dict[str, Any]]]:
    made = [_opened(data, plainly=plainly) for plainly in (True, False)]
    for _, protocol, _ in made:
        protocol.openHandshakeTimeoutCall.cancel()
    return [server.scopes for server, _, _ in made]
