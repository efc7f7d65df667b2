"""The private names of Daphne, autobahn and Twisted that the node uses are still what they were."""

from __future__ import annotations

import asyncio
import gc
import inspect
import re
import socket
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement
from twisted.internet import abstract, asyncioreactor
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import StringTransport

from msgnode.servers import daphne_internals, daphne_reactor
from msgnode.servers.daphne import EventQueue, NodeServer
from msgnode.servers.daphne_http import NodeHttpFactory, _drop_unasking

from autobahn.twisted import websocket as _autobahn_twisted  # isort: skip
from autobahn.websocket import protocol as _autobahn  # isort: skip
from daphne import server as _stock  # isort: skip
from daphne.http_protocol import HTTPFactory, WebRequest  # isort: skip
from daphne.ws_protocol import WebSocketFactory, WebSocketProtocol  # isort: skip
from twisted.internet import reactor as _reactor  # isort: skip
from twisted.internet import tcp  # isort: skip
from twisted.internet.asyncioreactor import AsyncioSelectorReactor  # isort: skip
from twisted.web import http as _http  # isort: skip

reactor: Any = _reactor
ROOT = Path(__file__).parents[2]

INTERNALS: tuple[tuple[Any, str, str], ...] = (
    # methods: how each is called
    (AsyncioSelectorReactor, "_disconnectSelectable", "(self, selectable, why, isRead, faildict)"),
    (_autobahn.WebSocketProtocol, "_fail_connection", "(self, code, reason)"),
    (
        _autobahn.WebSocketProtocol,
        "_max_message_size_exceeded",
        "(self, msg_size, max_msg_size, reason)",
    ),
    (_autobahn.WebSocketServerProtocol, "_connectionMade", "(self)"),
    (WebSocketFactory, "setProtocolOptions", ""),
    (_autobahn.WebSocketServerProtocol, "_connectionLost", "(self, reason)"),
    (_autobahn.WebSocketProtocol, "is_closed", "attribute"),
    (_autobahn.WebSocketProtocol, "send_queue", "attribute"),
    (_autobahn.WebSocketProtocol, "sendCloseFrame", "(self, code, reasonUtf8, isReply)"),
    (_autobahn.WebSocketProtocol, "dropConnection", "(self, abort)"),
    (_autobahn.WebSocketProtocol, "onCloseHandshakeTimeout", "(self)"),
    (
        _autobahn.WebSocketServerProtocol,
        "sendHttpErrorResponse",
        "(self, code, reason, responseHeaders)",
    ),
    (_autobahn_twisted.WebSocketAdapterProtocol, "_closeConnection", "(self, abort)"),
    (tcp.Server, "_shouldShutdown", "attribute"),
    (AsyncioSelectorReactor, "_readOrWrite", "(self, selectable, read)"),
    (tcp.Port, "doRead", "(self)"),
    (tcp.Server, "doRead", "(self)"),
    (tcp.Port, "numberAccepts", "attribute"),
    (tcp.Port, "transport", "attribute"),
    (WebSocketProtocol, "handle_reply", "(self, message)"),
    (WebSocketProtocol, "serverReject", "(self)"),
    (WebSocketProtocol, "check_timeouts", "(self)"),
    (WebRequest, "check_timeouts", "(self)"),
    (WebRequest, "process", "(self)"),
    (WebSocketProtocol, "onConnect", "(self, request)"),
    (
        _autobahn.WebSocketServerProtocol,
        "failHandshake",
        "(self, reason, code, responseHeaders)",
    ),
    (_http.HTTPChannel, "clearLineBuffer", "(self)"),
    (_http.Request, "gotLength", "(self, length)"),
    (_http.Request, "handleContentChunk", "(self, data)"),
    (HTTPFactory, "buildProtocol", "(self, addr)"),
    (WebSocketFactory, "buildProtocol", "(self, addr)"),
    (WebSocketFactory, "server_class", "attribute"),
    (WebSocketProtocol, "application_queue", "attribute"),
    (WebSocketProtocol, "handshake_deferred", "attribute"),
    (WebSocketProtocol, "serverAccept", "(self, subprotocol)"),
    (WebSocketProtocol, "clean_headers", "attribute"),
    (WebSocketProtocol, "client_addr", "attribute"),
    (WebSocketProtocol, "server_addr", "attribute"),
    (WebSocketProtocol, "socket_opened", "attribute"),
    (WebSocketProtocol, "root_path", "attribute"),
    (WebSocketProtocol, "request", "attribute"),
    (WebSocketProtocol, "path", "attribute"),
    (_stock.Server, "protocol_connected", "(self, protocol)"),
    (_stock.Server, "create_application", "(self, protocol, scope)"),
    (_stock.Server, "application_checker", "(self)"),
    (_stock.Server, "timeout_checker", "(self)"),
    (_stock.Server, "kill_all_applications", "(self)"),
    (_stock.Server, "listen_success", "(self, port)"),
    (_stock.Server, "protocol_disconnected", "(self, protocol)"),
    (_stock.Server, "application_close_timeout", "attribute"),
    (_autobahn.WebSocketProtocol, "sendData", "(self, data, sync, chopsize)"),
    (_autobahn.WebSocketProtocol, "consumeData", "(self)"),
    (_autobahn.WebSocketProtocol, "processData", "(self)"),
    (_autobahn.WebSocketProtocol, "onFrameBegin", "(self)"),
    # names a module makes its parts from
    (asyncioreactor, "callWithLogger", ""),
    (_autobahn, "hltype", ""),
    (_autobahn, "hlval", ""),
    (_autobahn, "pformat", ""),
    (_autobahn_twisted, "hltype", ""),
    (_autobahn_twisted, "hlval", ""),
    (_stock, "time", ""),
    (_stock, "WebSocketFactory", ""),
    (_stock, "HTTPFactory", ""),
    (_stock, "serverFromString", ""),
    # attributes of instances, found in the source of the class that sets them
    (tcp.Server, "client", "attribute"),
    (tcp.Connection, "setTcpNoDelay", "(self, enabled)"),
    (tcp.Connection, "socket", "attribute"),
    (tcp.Connection, "reactor", "attribute"),
    (abstract.FileDescriptor, "connected", "attribute"),
    (abstract.FileDescriptor, "disconnecting", "attribute"),
    (abstract.FileDescriptor, "dataBuffer", "attribute"),
    (abstract.FileDescriptor, "_tempDataBuffer", "attribute"),
    (abstract.FileDescriptor, "_tempDataLen", "attribute"),
    (abstract.FileDescriptor, "offset", "attribute"),
    (abstract.FileDescriptor, "producerPaused", "attribute"),
    (abstract.FileDescriptor, "disconnecting", "attribute"),
    (abstract.FileDescriptor, "connected", "attribute"),
    (_autobahn.WebSocketServerProtocol, "CONFIG_ATTRS", "attribute"),
    (_autobahn.WebSocketProtocol, "_WS_MAGIC", "attribute"),
    (_autobahn.WebSocketProtocol, "openHandshakeTimeoutCall", "attribute"),
    (_autobahn.WebSocketServerProtocol, "websocket_protocol_in_use", "attribute"),
    (_autobahn.WebSocketServerProtocol, "websocket_extensions_in_use", "attribute"),
    (_autobahn.WebSocketProtocol, "data", "attribute"),
    (_autobahn.WebSocketProtocol, "state", "attribute"),
    (_autobahn.WebSocketProtocol, "send_queue", "attribute"),
    (_autobahn.WebSocketProtocol, "current_frame", "attribute"),
    (_autobahn.WebSocketProtocol, "inside_message", "attribute"),
    (_autobahn.WebSocketProtocol, "autoPingTimeoutCall", "attribute"),
    (_autobahn.WebSocketProtocol, "wasClean", "attribute"),
    (_autobahn.WebSocketProtocol, "closeHandshakeTimeout", "attribute"),
    (_autobahn.WebSocketProtocol, "closeHandshakeTimeoutCall", "attribute"),
    (WebSocketFactory, "_batched_timer", "attribute"),
    (WebSocketProtocol, "muted", "attribute"),
    (WebSocketProtocol, "last_ping", "attribute"),
    (_stock.Server, "connections", "attribute"),
    (_http._GenericHTTPChannelProtocol, "_channel", "attribute"),
    (AsyncioSelectorReactor, "_asyncioEventloop", "attribute"),
)
"""(owner, name, how it is called: without defaults and types, "" for whatever it is)."""


def drift(owner: Any, name: str, usage: str) -> str:
    """What has changed about a name, "" if nothing."""
    if usage == "attribute":
        classes = inspect.getmro(owner)
        if any(name in vars(each) for each in classes):
            return ""
        modules = {inspect.getmodule(each) for each in classes if each is not object}
        sources = "".join(inspect.getsource(module) for module in modules if module is not None)
        is_set = re.search(rf"self\.{name}\b[^=\n]*=[^=]|[\"\']{name}[\"\']", sources)
        return "" if is_set else "is set nowhere"
    found = getattr(owner, name, None)
    if found is None:
        return "is gone"
    if not usage:
        return ""
    called = f"({', '.join(inspect.signature(found).parameters)})"
    return "" if called == usage else f"is called {called} now"


@pytest.mark.parametrize(("owner", "name", "usage"), INTERNALS, ids=[each[1] for each in INTERNALS])
def test_a_private_name_is_what_it_was(owner: Any, name: str, usage: str) -> None:
    assert drift(owner, name, usage) == ""


def test_no_other_file_uses_a_private_name_of_theirs() -> None:
    private = {name for _, name, _ in INTERNALS if name.startswith("_")}
    own = {Path(daphne_internals.__file__), Path(daphne_reactor.__file__)}
    for file in (ROOT / "msgnode").rglob("*.py"):
        if file not in own:
            used = set(re.findall(r"\.(_\w+)", file.read_text()))
            assert not used & (private - {"_channel"}), file


@pytest.mark.parametrize("name", ["daphne", "Twisted", "autobahn"])
def test_what_has_private_names_is_pinned_to_the_releases_that_were_looked_at(name: str) -> None:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    wanted = [Requirement(line.split("#")[0]) for line in lines if line.startswith(name)]
    (pinned,) = wanted
    assert pinned.specifier.contains(version(name))
    year, month = (int(part) for part in version(name).split(".")[:2])
    assert not pinned.specifier.contains(f"{year}.{month + 1}.0")
    assert not pinned.specifier.contains(f"{year + 1}.0.0")


def test_of_many_connections_that_wait_a_port_takes_a_few_in_each_turn() -> None:
    from twisted.internet import reactor  # the one that daphne_reactor has installed

    made: list[Any] = []

    class Counting(Factory):
        def buildProtocol(self, addr: Any) -> None:  # noqa: N802 (Twisted's name)
            made.append(addr)

    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        listening.setblocking(False)
        port: Any = reactor.adoptStreamPort(listening.fileno(), socket.AF_INET, Counting())
        stack.callback(port.stopListening)
        port.stopReading()  # its turns come by hand
        daphne_reactor.accept_a_few(port, 4)
        for _ in range(11):
            stack.enter_context(socket.create_connection(listening.getsockname()))
        taken = []

        async def take() -> None:
            for _ in range(4):
                before = len(made)
                port.doRead()
                taken.append(len(made) - before)
                await asyncio.sleep(0)

        daphne_reactor.event_loop().run_until_complete(take())
    assert taken == [4, 4, 3, 0]


class Ending(Protocol):
    """Hangs up on what it has read, as `hang_up` does."""

    made: list[Ending]

    def connectionMade(self) -> None:  # noqa: N802 (Twisted's name)
        self.made.append(self)
        self.has_hung_up: bool | None = None
        self.reason: Any = None

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 (Twisted's name)
        if data == b"much":
            self.transport.write(b"x" * 20_000_000)  # type: ignore[union-attr]
        self.has_hung_up = daphne_internals.hang_up(self.transport)
        if not self.has_hung_up:
            self.transport.loseConnection()  # type: ignore[union-attr]

    def connectionLost(self, reason: Any = None) -> None:  # noqa: N802 (Twisted's name)
        self.reason = reason


def read_to_the_end(said: bytes) -> tuple[Ending, int]:
    """What became of a connection on which this was said, and how many bytes came."""
    from twisted.internet import reactor  # the one that daphne_reactor has installed

    Ending.made = []

    async def talk(address: Any) -> int:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(said)
        came = len(await asyncio.wait_for(reader.read(), 30))
        writer.close()
        await asyncio.sleep(0)
        return came

    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listening.setblocking(False)
        factory = Factory.forProtocol(Ending)
        port: Any = reactor.adoptStreamPort(listening.fileno(), socket.AF_INET, factory)
        stack.callback(port.stopListening)
        came = daphne_reactor.event_loop().run_until_complete(talk(listening.getsockname()))
    (ended,) = Ending.made
    return ended, came


def test_a_connection_with_nothing_to_send_is_hung_up_on_without_a_wait_for_its_socket() -> None:
    ended, came = read_to_the_end(b"end")
    assert ended.has_hung_up
    assert came == 0
    assert ended.reason.check(ConnectionDone)
    transport: Any = ended.transport
    assert not transport.connected
    assert not daphne_internals.hang_up(transport)  # once is enough


def test_what_waits_to_be_sent_is_sent_before_the_end() -> None:
    ended, came = read_to_the_end(b"much")
    assert ended.has_hung_up is False
    assert came == 20_000_000
    assert ended.reason.check(ConnectionDone)


def test_a_read_is_not_named_to_a_log_and_one_that_fails_ends_its_connection_alone() -> None:
    from twisted.internet import reactor  # the one that daphne_reactor has installed

    loop = daphne_reactor.event_loop()
    callers: list[str] = []
    lost = asyncio.Event()
    heard = asyncio.Event()

    class Reading(Protocol):
        def dataReceived(self, data: bytes) -> None:  # noqa: N802 (Twisted's name)
            callers.extend(each.function for each in inspect.stack())
            if data == b"bad":
                raise ValueError(data)
            heard.set()

        def connectionLost(self, reason: Any = None) -> None:  # noqa: N802 (Twisted's name)
            if reason.check(ValueError):
                lost.set()

    async def talk(address: Any) -> None:
        sockets = [await asyncio.open_connection(*address) for _ in range(2)]
        said = ((b"bad", lost), (b"good", heard))
        for (_, writer), (text, noticed) in zip(sockets, said, strict=True):
            writer.write(text)
            await asyncio.wait_for(noticed.wait(), 10)
        for _, writer in sockets:
            writer.close()

    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listening.setblocking(False)
        factory = Factory.forProtocol(Reading)
        port: Any = reactor.adoptStreamPort(listening.fileno(), socket.AF_INET, factory)
        stack.callback(port.stopListening)
        loop.run_until_complete(talk(listening.getsockname()))
    assert "_readOrWrite" in callers
    assert not {"callWithLogger", "callWithContext"} & set(callers)


class _Checked:
    """What Daphne checks for its limits."""

    def __init__(self) -> None:
        self.checks = 0

    def check_timeouts(self) -> None:
        self.checks += 1


def test_a_request_that_is_done_writes_no_time_out_into_the_websocket_it_has_become() -> None:
    server = NodeServer.__new__(NodeServer)
    upgraded: Any = _Checked()
    asked: Any = _Checked()
    server.connections = {upgraded: {"disconnected": 1.0}, asked: {"connected": 1.0}}
    for each in (upgraded, asked):
        server._look_after(each)
    assert (upgraded.checks, asked.checks) == (0, 1)


def test_no_limit_of_daphne_follows_a_clock_that_is_set_forward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request: Any = _Checked()
    request.request_start = time.monotonic()
    opened: Any = SimpleNamespace(socket_opened=time.monotonic())
    server: Any = SimpleNamespace(connections={request: {}})
    monkeypatch.setattr(time, "time", lambda: 1e12)
    assert WebRequest.duration(request) < 60
    assert WebSocketProtocol.duration(opened) < 60
    _stock.Server.protocol_disconnected(server, request)
    assert server.connections[request]["disconnected"] < 1e11


def test_a_connection_that_is_lost_after_it_was_removed_is_no_fault() -> None:
    server: Any = NodeServer.__new__(NodeServer)
    protocol = object()
    server.connections, server._ending = {protocol: {}}, {}
    server.protocol_disconnected(protocol)
    server._reap(protocol)
    assert server.connections == {} == server._ending
    server.protocol_disconnected(protocol)
    assert server.connections == {} == server._ending


def test_of_a_read_of_many_frames_autobahn_parses_a_few_in_each_turn_and_reads_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    later: list[Any] = []
    loop = SimpleNamespace(call_soon=later.append)
    monkeypatch.setattr(daphne_internals, "event_loop", lambda: loop)
    protocol: Any = daphne_internals.InternalProtocol.__new__(daphne_internals.InternalProtocol)
    protocol.state, protocol.transport = protocol.STATE_OPEN, StringTransport()
    left = 3 * 2 * daphne_internals.AT_ONCE - 1

    def parse() -> bool:
        nonlocal left
        left -= 1
        return left > 0

    protocol.processData = parse
    protocol.consumeData()
    for turns in (2, 1):
        assert left == turns * 2 * daphne_internals.AT_ONCE - 1
        protocol.set_reading(True)
        assert protocol.transport.producerState == "paused"
        later.pop()()
    assert (left, later, protocol.transport.producerState) == (0, [], "producing")

    left = 3 * 2 * daphne_internals.AT_ONCE - 1
    protocol.consumeData()
    monkeypatch.setattr(WebSocketProtocol, "_connectionLost", lambda *_: None)
    protocol._connectionLost(None)
    assert left == 0, "what was read before the connection was lost"


def unread() -> tuple[NodeHttpFactory, Any, StringTransport]:
    """A connection that has sent nothing yet, as the server has it."""
    upgraded = Protocol()
    server = SimpleNamespace(
        request_patience=60.0,
        max_request_bytes=1_000,
        proxy_forwarded_address_header=None,
        protocol_connected=lambda _: None,
        protocol_disconnected=lambda _: None,
        ws_factory=SimpleNamespace(buildProtocol=lambda _: upgraded),
    )
    factory = NodeHttpFactory(server)
    made: list[Any] = []
    [limit] = _limits(factory._drop_silent, lambda: made.append(factory.buildProtocol(None)))
    limit.cancel()
    (connection,), transport = made, StringTransport()
    transport.protocol = connection
    connection.makeConnection(transport)
    return factory, connection, transport


def _limits(func: Any, make: Callable[[], Any]) -> list[Any]:
    """The calls that this has set for later."""
    before = reactor.getDelayedCalls()
    make()
    new = [each for each in reactor.getDelayedCalls() if each not in before]
    return [each for each in new if each.func == func]


def test_an_http_connection_that_has_ended_is_not_kept_until_its_time_limit() -> None:
    factory, connection, transport = unread()
    [limit] = _limits(_drop_unasking, partial(connection.dataReceived, b"GET /"))
    assert 59 < limit.getTime() - reactor.seconds() <= 60
    ended = weakref.ref(transport.protocol)
    del transport.protocol, connection
    gc.collect()
    assert ended() is None
    limit.func(*limit.args)  # which finds nothing to end
    limit.cancel()


def test_of_connections_that_say_nothing_one_timer_ends_those_whose_time_is_over() -> None:
    factory, connection, transport = unread()
    first, late = StringTransport(), StringTransport()
    made = []
    for each in (first, late):
        drops = _limits(factory._drop_silent, lambda: made.append(factory.buildProtocol(None)))
        assert not drops, "one is enough"
        made[-1].makeConnection(each)
    connection.connectionLost()
    factory._silent[made[0]] = time.monotonic()
    [again] = _limits(factory._drop_silent, factory._drop_silent)
    assert (first.disconnected, late.disconnected) == (True, False)
    assert 59 < again.getTime() - reactor.seconds() <= 60
    again.cancel()
    made[1].connectionLost()
    assert not _limits(factory._drop_silent, factory._drop_silent)
    [anew] = _limits(factory._drop_silent, lambda: factory.buildProtocol(None))
    anew.cancel()


def test_an_upgraded_connection_that_has_ended_goes_without_a_look_for_rings() -> None:
    gc.disable()
    try:
        factory, connection, transport = unread()
        request = "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\r\n"
        read, later = request[:20], request[20:]
        [limit] = _limits(_drop_unasking, partial(connection.dataReceived, read.encode()))
        limit.cancel()
        channel = daphne_internals.channel_of(transport.protocol)
        channel.dataReceived(later.encode())
        assert transport.protocol.transport is transport
        assert transport.protocol is not channel
        over = weakref.ref(channel)
        transport.unregisterProducer()  # as the link does
        del connection, channel
        assert over() is None
    finally:
        gc.enable()


async def test_what_an_application_receives_comes_in_order_and_past_who_waits_no_longer() -> None:
    queue = EventQueue()
    gone, first, second = (asyncio.ensure_future(queue.get()) for _ in range(3))
    await asyncio.sleep(0)
    gone.cancel()
    for event in "abc":
        queue.put_nowait(event)
    assert [await first, await second, await queue.get()] == ["a", "b", "c"]
    woken, other = (asyncio.ensure_future(queue.get()) for _ in range(2))
    await asyncio.sleep(0)
    queue.put_nowait("d")
    woken.cancel()  # between the event and its turn
    assert await other == "d"
