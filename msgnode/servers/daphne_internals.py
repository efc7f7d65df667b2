"""All uses of names that are Daphne's, autobahn's or Twisted's alone, but for daphne_reactor.py's.

requirements.txt pins the three narrowly, tests/servers/test_daphne_internals.py lists what is used
and fails where one of the names is gone or is called otherwise. So a new release is looked at in
the two files, and nowhere else.

- InternalProtocol: autobahn reads a frame in many calls; plain texts are cut out of a read before,
  and only while autobahn has nothing under way. A fault of the client is told to `fail`. Before the
  upgrade is answered one read is kept, and no more is read.
- `run_timers_exactly`: autobahn's timers are cut to whole seconds. One of a second may run out at
  once, and a client that answers a closing handshake within a millisecond is hung up on before it
  has the code. They are the event loop's own, which cost a quarter of Twisted's.
- `write_now`: bytes go to a socket that has nothing waiting, without Twisted's turn of the loop. So
  do autobahn's frames, such as that of a close, and `hang_up` is the same for the end.
- autobahn colours what it logs, and lays it out, before it looks whether it does: a tenth of a
  close.
- `serve_with`: Daphne makes its factories and its endpoint from names of its module.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet import main

from msgnode.core.faults import FAULTS
from msgnode.servers.daphne_reactor import event_loop  # first: it installs the reactor
from msgnode.servers.text_frames import whole_texts

_TCP_CLOSE = 7  # the kernel's state of a socket that was reset (Linux's tcp_states.h)

import daphne.server as _stock  # noqa: E402
from autobahn.twisted import websocket as _autobahn_twisted  # noqa: E402
from autobahn.websocket import protocol as _autobahn  # noqa: E402
from daphne.ws_protocol import WebSocketProtocol  # noqa: E402


def _as_it_is(value: Any, *_: Any, **__: Any) -> Any:
    """What autobahn would colour, or lay out, for its log."""
    return value


for _module in (_autobahn, _autobahn_twisted):
    vars(_module).update(hltype=_as_it_is, hlval=_as_it_is)
vars(_autobahn).update(pformat=_as_it_is)


class _Link(Protocol):
    """What writes to a client, and may have asked whether it is alive."""

    awaiting: list[Callable[[], None]]

    def heard(self) -> None:
        """The client has sent something."""
        ...

    def take_corked(self) -> bytes:
        """What was written in this turn of the loop and is not handed over yet."""
        ...


class InternalProtocol(WebSocketProtocol):
    """Daphne's WebSocket protocol; whole text frames go to `receiver` once there is one."""

    receiver: Callable[[bytes], None] | None = None
    link: _Link | None = None
    has_failed = False
    _has_waited = False
    __hash__, __eq__ = object.__hash__, object.__eq__  # as Daphne has them, without calls of Python
    data: bytes  # autobahn's: what has been read and not consumed

    def _connectionMade(self) -> None:  # noqa: N802
        """autobahn writes all options into a log line nobody reads: an eighth of an open."""
        for name in self.CONFIG_ATTRS:
            setattr(self, name, getattr(self.factory, name))
        self.CONFIG_ATTRS: tuple[str, ...] = ()
        super()._connectionMade()

    def _connectionLost(self, reason: Any) -> None:  # noqa: N802
        """autobahn is the result of a future of its own, a ring that would stay for long."""
        super()._connectionLost(reason)
        self.is_closed = None

    def dataReceived(self, data: bytes) -> None:  # noqa: N802
        """Give whole text frames to the receiver; autobahn gets everything else.

        All in line, because this is done for each read.
        """
        if self.has_failed:
            self.still_sends(len(data))
            return
        if self.link is not None and self.link.awaiting:
            self.link.heard()  # any byte is a sign of life
        receiver = self.receiver
        if (  # or autobahn has something under way: a frame, fragments, a ping of its own
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
            self.last_ping = time.time()
            for text in texts:
                receiver(text)
        if not is_plain:
            super().dataReceived(b"")

    def sendData(  # noqa: N802
        self, data: bytes, sync: bool = False, chopsize: int | None = None
    ) -> None:
        """A frame of autobahn's own goes to the socket at once where nothing waits before it.

        It leaves together with what was written before it in this turn of the loop.
        """
        transport = self.transport
        if self.link is not None:
            data = self.link.take_corked() + data
        if self.state == self.STATE_OPEN and transport.connected and not self.send_queue:
            data = write_now(transport, data)
        if data:
            super().sendData(data, sync, chopsize)

    def _wait_until_open(self, data: bytes) -> None:
        """A client has more to say before it was let in: one read of it is kept, and no more.

        autobahn would keep all of it, and take what looks like a request for another handshake.
        """
        self.data += data
        self._has_waited = True
        self.transport.pauseProducing()

    def onOpen(self) -> None:  # noqa: N802
        """Read on: what the client had to say too early was held until now."""
        super().onOpen()
        self.transport.is_new = False
        if self._has_waited:
            self.transport.resumeProducing()

    def still_sends(self, size: int) -> None:
        """A client that has failed, and was told, has sent so many bytes more."""
        raise NotImplementedError

    def _closeConnection(self, abort: bool = False) -> None:  # noqa: N802
        """Hang up in the next turn of the loop if nothing is left to be sent."""
        if abort or not hang_up(self.transport):
            super()._closeConnection(abort)

    @property
    def may_write(self) -> bool:
        """Whether the handshake is over and no close frame was sent or received."""
        return bool(self.state == self.STATE_OPEN)

    @property
    def has_closed(self) -> bool:
        """Whether the WebSocket is at its end; the transport may still have to be dropped."""
        return bool(self.state == self.STATE_CLOSED)

    def fail(self, code: int, reason: str) -> None:
        """The client has broken the protocol."""
        super()._fail_connection(code, reason)

    def too_large(self, limit: int) -> None:
        """The client sends a message of more than so many bytes."""
        raise NotImplementedError

    def hear_no_more(self, patience: float) -> None:
        """Throw away what comes; the client has so many seconds to hang up after it is told."""
        self.has_failed = True
        self.closeHandshakeTimeout = patience

    def end_stream(self) -> None:
        """Say the end of the stream to the client, and read on what it still sends."""
        self.data = b""
        self.transport.unregisterProducer()  # or Twisted waits for it with the end of writing
        self.transport.loseWriteConnection()
        self.transport.resumeProducing()

    def _fail_connection(self, code: int = 1002, reason: str = "") -> None:
        self.fail(code, reason)

    def _max_message_size_exceeded(self, msg_size: int, max_msg_size: int, reason: str) -> None:
        self.too_large(max_msg_size)


class _Timers:
    """Timers that run for as long as they are asked to."""

    @staticmethod
    def call_later(delay: float, called: Callable[..., None], *args: Any) -> Any:
        return event_loop().call_later(delay, called, *args)


def run_timers_exactly(factory: Any) -> None:
    """Give the protocols of a factory timers that run for as long as they are asked to."""
    factory._batched_timer = _Timers


def write_now(transport: Any, data: bytes) -> bytes:
    """Write to the socket what it takes at once, if nothing waits before it; returns the rest.

    A connection that is lost takes nothing: Twisted finds that out when it is given the rest.
    """
    if transport.dataBuffer or transport._tempDataBuffer:
        return data
    try:
        sent: int = transport.socket.send(data)
    except OSError:
        return data
    return data[sent:]


def hang_up(transport: Any) -> bool:
    """End a connection in the next turn of the loop, unless something waits to be sent.

    Twisted would wait for a socket that may be written to.
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
    """Have Twisted say to the producer, by resumeProducing, when all bytes are sent."""
    transport.producerPaused = True


def unsent_bytes(transport: Any) -> int:
    """Bytes that wait in a transport."""
    return len(transport.dataBuffer) - int(transport.offset) + int(transport._tempDataLen)


def channel_of(protocol: Any) -> Any:
    """The HTTP channel behind what a factory of Twisted's makes."""
    return getattr(protocol, "_channel", protocol)


def serve_with(websockets: type[Any], http: type[Any], endpoint: Callable[..., Any]) -> None:
    """Have Daphne make these factories and this endpoint when it runs."""
    _stock.WebSocketFactory = websockets
    _stock.HTTPFactory = http
    _stock.serverFromString = endpoint


def is_reset(transport: Any) -> bool:
    """Whether the peer has reset a connection that is still taken for open."""
    raw = getattr(transport, "socket", None)
    if raw is None or not hasattr(socket, "TCP_INFO"):
        return False
    with contextlib.suppress(OSError):
        return bool(raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_CLOSE)
    return False
