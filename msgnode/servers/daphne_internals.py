"""All uses of private names of Daphne, autobahn and Twisted, except for daphne_reactor.py.

requirements.txt pins the three narrowly; tests/servers/test_daphne_internals.py lists the names
used and fails if one is gone or has another signature. So a new release needs a review of these two
files only.

- InternalProtocol: autobahn parses a frame in many calls; plain text frames are cut out of a read
  before it, while autobahn has nothing in progress. A client error is passed to `fail`. Before the
  upgrade is answered one read is kept, and reading pauses. A read may hold ten thousand frames;
  autobahn parses AT_ONCE of them in a turn of the loop. Control frames and small fragments, which
  no limit of messages counts, have one of their own.
- `run_timers_exactly`: autobahn rounds its timers to whole seconds. One of a second may expire at
  once, and a client that answers a closing handshake within a millisecond is then dropped before it
  has the code. The event loop's own timers are exact, and cost a quarter of Twisted's.
- `write_now`: bytes are written at once to a socket with an empty buffer, without waiting for
  Twisted's next turn; so are autobahn's own frames, such as close frames. `hang_up` does the same
  for the end of the connection.
- autobahn colours and formats log messages even if they are not logged: a tenth of the cost of a
  close.
- Daphne takes its limits from the wall clock; one that is set forward would end all requests and
  ping all sockets at once. Its modules have a monotonic clock instead.
- `upgrade_plainly`: a request for a WebSocket that has no fault is answered without autobahn's
  reader and the Deferreds around it.
- `early_bytes`: what a client sends together with its request for an upgrade is left in the HTTP
  channel, which nobody reads any more.
- Twisted has no words for newer codes, such as 426 and 429: "Unknown Status".
- `serve_with`: Daphne creates its factories and its endpoint from names of its module.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, Protocol

from twisted.internet import main

from msgnode.core.faults import FAULTS
from msgnode.core.token_bucket import TokenBucket
from msgnode.servers.daphne_reactor import event_loop  # first: it installs the reactor
from msgnode.servers.plain_upgrade import PlainUpgrade
from msgnode.servers.text_frames import whole_texts

_TCP_CLOSE = 7  # the kernel's state of a socket that was reset (Linux's tcp_states.h)
_INT = struct.Struct("i")

AT_ONCE = 128
"""Frames of a connection that autobahn parses in one turn of the loop."""
UNCOUNTED_PER_SECOND = 1_000
"""Control frames and small fragments that a client may send."""
_SMALL = 512  # bytes; a megabyte in larger fragments is not many
_SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: Upgrade"

import daphne.http_protocol as _stock_http  # noqa: E402
import daphne.server as _stock  # noqa: E402
import daphne.ws_protocol as _stock_ws  # noqa: E402
from autobahn.twisted import websocket as _autobahn_twisted  # noqa: E402
from autobahn.websocket import protocol as _autobahn  # noqa: E402
from daphne.ws_protocol import WebSocketProtocol  # noqa: E402
from twisted.web.http import RESPONSES as _WORDS  # noqa: E402


def _as_it_is(value: Any, *_: Any, **__: Any) -> Any:
    """Return a value unchanged, instead of autobahn's colouring or formatting for its log."""
    return value


for _module in (_autobahn, _autobahn_twisted):
    vars(_module).update(hltype=_as_it_is, hlval=_as_it_is)
vars(_autobahn).update(pformat=_as_it_is)
for _module in (_stock, _stock_http, _stock_ws):
    vars(_module).update(time=SimpleNamespace(time=time.monotonic))
for _status in HTTPStatus:
    _WORDS.setdefault(_status.value, _status.phrase.encode())


class _Link(Protocol):
    """The link to a client, as far as the protocol uses it."""

    awaiting: list[Callable[[], None]]
    bytes_behind: int

    def heard(self) -> None:
        """Note that the client has sent something."""
        ...

    def take_corked(self) -> bytes:
        """Return what was written in this turn of the loop and not passed on yet."""
        ...


class _Decision:
    """What Daphne tells whether the application takes a WebSocket, in place of a Deferred."""

    def __init__(self, accept: Callable[[str | None], None], refuse: Callable[..., None]) -> None:
        self.callback = accept
        self._refuse = refuse

    def errback(self, denied: Any) -> None:
        """Refuse the upgrade."""
        self._refuse(denied.reason, denied.code)


class InternalProtocol(WebSocketProtocol):
    """Daphne's WebSocket protocol; whole text frames go to `receiver` once there is one."""

    receiver: Callable[[bytes], None] | None = None
    link: _Link | None = None
    has_failed = False
    may_read = True  # whether the link wants more
    websocket_version = 13  # which a plain request is of
    _is_behind = False  # whether frames that were read wait for the next turn
    _has_waited = False
    _uncounted: TokenBucket | None = None
    __hash__, __eq__ = object.__hash__, object.__eq__  # as in Daphne, without calls of Python code
    data: bytes  # autobahn's: bytes read and not consumed
    current_frame: Any
    openHandshakeTimeoutCall: Any  # noqa: N815 (autobahn's name)

    def upgrade_plainly(self, transport: Any, asked: PlainUpgrade) -> None:
        """Take a connection over, and pass its request to the application.

        This does what makeConnection, dataReceived and onConnect do for a request without a fault.
        """
        self.transport = transport
        self.connected = 1
        host, port = transport.client[:2]
        self.peer = f"tcp:{host}:{port}"
        transport.setTcpNoDelay(True)
        self._connectionMade()
        self.send_queue = ()  # of what is sent in pieces, which nothing is
        self.server = self.factory.server_class
        self.server.protocol_connected(self)
        self.request = asked
        self.path = asked.path.encode()
        self.root_path = self.server.root_path
        self.socket_opened = self.last_ping = time.monotonic()
        self.clean_headers = asked.headers
        self.client_addr = [host, port]
        self.server_addr = list(transport.socket.getsockname()[:2])
        self.handshake_deferred = _Decision(self._accept_plainly, self.failHandshake)
        scope = {
            "type": "websocket",
            "path": asked.path,
            "raw_path": self.path,
            "root_path": self.root_path,
            "headers": asked.headers,
            "query_string": asked.query,
            "client": self.client_addr,
            "server": self.server_addr,
            "subprotocols": asked.subprotocols,
        }
        self.application_queue = self.server.create_application(self, scope)
        self.application_queue.put_nowait({"type": "websocket.connect"})
        if asked.rest:
            self.dataReceived(asked.rest)

    def _accept_plainly(self, subprotocol: str | None) -> None:
        """Answer the request, as succeedHandshake does where no extension is agreed on."""
        key = hashlib.sha1(self.request.key + self._WS_MAGIC, usedforsecurity=False)
        lines = [_SWITCHING, b"Sec-WebSocket-Accept: " + base64.b64encode(key.digest())]
        if subprotocol is not None:
            lines.insert(1, b"Sec-WebSocket-Protocol: " + subprotocol.encode())
        self.websocket_protocol_in_use = subprotocol
        self.websocket_extensions_in_use: list[Any] = []
        self.inside_message = False
        self.current_frame = None
        self.state = self.STATE_OPEN
        self.sendData(b"\r\n".join([*lines, b"", b""]))
        if self.openHandshakeTimeoutCall is not None:
            self.openHandshakeTimeoutCall.cancel()
            self.openHandshakeTimeoutCall = None
        self.onOpen()
        if self.data:
            self.consumeData()

    def _connectionLost(self, reason: Any) -> None:  # noqa: N802
        """Parse what was read before, and break a reference cycle: a future has autobahn itself."""
        if self._is_behind and not self.has_failed:
            with FAULTS.kept_to("connection"):
                while self.state != self.STATE_CLOSED and self.processData():
                    pass
        super()._connectionLost(reason)
        self.is_closed = None

    def dataReceived(self, data: bytes) -> None:  # noqa: N802
        """Pass whole text frames to the receiver, and everything else to autobahn.

        All inlined, because this runs for each read.
        """
        if self.has_failed:
            self.still_sends(len(data))
            return
        if self.link is not None and self.link.awaiting:
            self.link.heard()  # any byte is a sign of life
        receiver = self.receiver
        if (  # else autobahn has something in progress: a frame, fragments, a ping
            receiver is None
            or self.state != self.STATE_OPEN
            or self.current_frame is not None
            or self.inside_message
            or self.autoPingTimeoutCall is not None
            or self.muted
        ):
            if self.link is not None and self.state == self.STATE_CONNECTING:
                self._wait_until_open(data)
            else:
                super().dataReceived(data)
            return
        if self.data:
            data = self.data + data
        texts, end, is_plain = whole_texts(data, self.maxMessagePayloadSize)
        self.data = data[end:]
        if texts:
            self.last_ping = time.monotonic()
            for text in texts:
                receiver(text)
        if not is_plain:
            super().dataReceived(b"")

    def consumeData(self) -> None:  # noqa: N802
        """Have autobahn parse what was read: a few frames in each turn of the loop."""
        if self.state not in (self.STATE_OPEN, self.STATE_CLOSING):
            super().consumeData()
            return
        for _ in range(2 * AT_ONCE):  # header and payload
            if not self.processData() or self.state == self.STATE_CLOSED:
                return
        if not self._is_behind:
            self._is_behind = True
            self.transport.pauseProducing()
            event_loop().call_soon(self._consume_rest)

    def _consume_rest(self) -> None:
        self._is_behind = False
        if self.has_failed or self.state == self.STATE_CLOSED:
            return
        with FAULTS.kept_to("connection"):
            self.consumeData()
            self.set_reading(self.may_read)

    def set_reading(self, may_read: bool) -> None:  # noqa: FBT001
        """Read from the socket or not; never while frames that were read wait."""
        self.may_read = may_read
        if may_read and not self._is_behind:
            self.transport.resumeProducing()
        else:
            self.transport.pauseProducing()

    def onFrameBegin(self) -> None:  # noqa: N802
        """Close a client that floods with frames that count as no messages."""
        super().onFrameBegin()
        frame = self.current_frame
        if (frame.opcode > 7 or not frame.fin) and frame.length < _SMALL:
            if self._uncounted is None:
                self._uncounted = TokenBucket(UNCOUNTED_PER_SECOND)
            if not self._uncounted.take():
                self.flooded(UNCOUNTED_PER_SECOND)

    def sendData(  # noqa: N802
        self, data: bytes, sync: bool = False, chopsize: int | None = None
    ) -> None:
        """Write a frame of autobahn's own at once, if the socket's buffer is empty.

        It leaves together with what was written before it in this turn of the loop.
        """
        transport = self.transport
        if self.link is not None:
            corked = self.link.take_corked()
            self.link.bytes_behind += len(data)
            data = corked + data
        if self.state == self.STATE_OPEN and transport.connected and not self.send_queue:
            data = write_now(transport, data)
        if data:
            super().sendData(data, sync, chopsize)

    def _wait_until_open(self, data: bytes) -> None:
        """Keep one read of a client that sends before the upgrade is answered, and pause reading.

        autobahn would keep all of it, and take what looks like a request for another handshake.
        """
        self.data += data
        self._has_waited = True
        self.transport.pauseProducing()

    def onOpen(self) -> None:  # noqa: N802
        """Resume reading, and process what the client sent too early."""
        super().onOpen()
        self.transport.is_new = False
        if self._has_waited:
            self.transport.resumeProducing()

    def still_sends(self, size: int) -> None:
        """Note that a failed client has sent so many more bytes."""
        raise NotImplementedError

    def _closeConnection(self, abort: bool = False) -> None:  # noqa: N802
        """Close the connection in the next turn of the loop if nothing is left to be sent."""
        if abort or not hang_up(self.transport):
            super()._closeConnection(abort)

    @property
    def may_write(self) -> bool:
        """Whether the handshake is over and no close frame was sent or received."""
        return bool(self.state == self.STATE_OPEN)

    @property
    def has_closed(self) -> bool:
        """Whether the WebSocket is closed; its transport may still have to be dropped."""
        return bool(self.state == self.STATE_CLOSED)

    def fail(self, code: int, reason: str) -> None:
        """Handle a protocol error of the client."""
        super()._fail_connection(code, reason)

    def too_large(self, limit: int) -> None:
        """Handle a message of the client that is over the limit in bytes."""
        raise NotImplementedError

    def flooded(self, limit: int) -> None:
        """Handle more than so many control frames and small fragments in a second."""
        raise NotImplementedError

    def hear_no_more(self, patience: float) -> None:
        """Discard what the client still sends; it has so many seconds to disconnect."""
        self.has_failed = True
        self.closeHandshakeTimeout = patience

    def end_stream(self) -> None:
        """Send the end of the stream, and keep reading."""
        self.data = b""
        self.transport.unregisterProducer()  # else Twisted waits for it before it ends writing
        self.transport.loseWriteConnection()
        self.transport.resumeProducing()

    def _fail_connection(self, code: int = 1002, reason: str = "") -> None:
        self.fail(code, reason)

    def _max_message_size_exceeded(self, msg_size: int, max_msg_size: int, reason: str) -> None:
        self.too_large(max_msg_size)


def with_options(kind: type[Any], factory: Any) -> type[Any]:
    """A class of protocols that has the options of a factory.

    autobahn copies all thirty into each protocol, and formats them for its log.
    """
    options: dict[str, Any] = {name: getattr(factory, name) for name in kind.CONFIG_ATTRS}
    for name, value in options.items():
        if callable(value):
            options[name] = staticmethod(value)
    own = {"CONFIG_ATTRS": (), "__module__": kind.__module__}
    return type(kind.__name__, (kind,), options | own)


class _Timers:
    """Timers with exact durations."""

    @staticmethod
    def call_later(delay: float, called: Callable[..., None], *args: Any) -> Any:
        return event_loop().call_later(delay, called, *args)


def run_timers_exactly(factory: Any) -> None:
    """Give the protocols of a factory timers with exact durations."""
    factory._batched_timer = _Timers


def write_now(transport: Any, data: bytes) -> bytes:
    """Write what the socket accepts at once if nothing is buffered; return the rest.

    A lost connection accepts nothing: Twisted notices that when it is given the rest.
    """
    if transport.dataBuffer or transport._tempDataBuffer:
        return data
    try:
        sent: int = transport.socket.send(data)
    except OSError:
        return data
    return data[sent:]


def hang_up(transport: Any) -> bool:
    """Close a connection in the next turn of the loop, unless something is still to be sent.

    Twisted would wait until the socket is writable.
    """
    if transport.disconnecting or unsent_bytes(transport):
        return False
    transport.disconnecting = True
    transport.stopReading()
    event_loop().call_soon(_hung_up, transport)
    return True


def _hung_up(transport: Any) -> None:
    if transport.connected:
        with FAULTS.kept_to("connection"):
            transport.reactor._disconnectSelectable(transport, main.CONNECTION_DONE, False)


def tell_when_empty(transport: Any) -> None:
    """Have Twisted call the producer's resumeProducing when all bytes are sent."""
    transport.producerPaused = True


def unsent_bytes(transport: Any) -> int:
    """The number of bytes buffered in a transport."""
    return len(transport.dataBuffer) - int(transport.offset) + int(transport._tempDataLen)


def unconfirmed_bytes(transport: Any) -> int:
    """The bytes that were written and the peer's system has not confirmed (on Linux), or sent."""
    waiting, raw = unsent_bytes(transport), getattr(transport, "socket", None)
    if raw is None or not sys.platform.startswith("linux"):
        return waiting
    with contextlib.suppress(OSError, ValueError):  # it is closed already
        (sent,) = _INT.unpack(fcntl.ioctl(raw.fileno(), termios.TIOCOUTQ, bytes(_INT.size)))
        waiting += sent
    return waiting


def early_bytes(channel: Any) -> bytes:
    """Take what was read together with a request, and follows it, out of its channel."""
    left: bytes = channel.clearLineBuffer()
    return left


def upgraded_to(request: Any) -> Any:
    """The protocol that has taken over the connection of an HTTP request; None if none has."""
    return request.channel.transport.protocol if request.transport is None else None


def channel_of(protocol: Any) -> Any:
    """The HTTP channel inside what a Twisted factory creates."""
    return getattr(protocol, "_channel", protocol)


def serve_with(websockets: type[Any], http: type[Any], endpoint: Callable[..., Any]) -> None:
    """Have Daphne use these factories and this endpoint when it runs."""
    _stock.WebSocketFactory = websockets
    _stock.HTTPFactory = http
    _stock.serverFromString = endpoint


def is_reset(transport: Any) -> bool:
    """Whether the peer has reset a connection that still counts as open."""
    raw = getattr(transport, "socket", None)
    if raw is None or not hasattr(socket, "TCP_INFO"):
        return False
    with contextlib.suppress(OSError):
        return bool(raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_CLOSE)
    return False
