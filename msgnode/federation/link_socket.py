"""One socket of a link, dialled or accepted: its handshake, its signs of life, its end.

Accepted ones come to `/federation/link`; this node's keys are published beside it.

Rules
- Each node proves by a key that counts (link_keys.py) that it is the node of its domain: it signs
  both hellos, with its role. Nothing is carried before.
- A socket that is silent for SILENCE_SECONDS is given up.
- Each fault ends one socket, with a code and words that both operators see.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from msgnode.core.envelope import EMPTY
from msgnode.core.faults import FAULTS
from msgnode.core.rates import source_of
from msgnode.net.http import Network

from . import link_keys
from . import link_protocol as protocol
from .link_keys import OwnKey
from .link_protocol import Frame, Hello, LinkFault, Ready

HANDSHAKE_SECONDS = 5.0
HEARTBEAT_SECONDS, SILENCE_SECONDS = 5.0, 20.0
LATELY_SECONDS = 2.0
"""A socket of which nothing was heard for longer gives way to any other that is proved."""
HANDSHAKES_AT_ONCE = 100
"""Accepted sockets of a worker that are not proved yet, at most. Beyond, the oldest of the source
address that has most of them gives way, so that who proves nothing keeps nobody out.
"""
_UNREAD = "what was sent is not read"


@dataclass(frozen=True, slots=True)
class OwnNode:
    """This node, as others see it; `networks` are those that may be dialled without TLS."""

    domain: str
    keys: Sequence[OwnKey]
    max_frame: int
    networks: Sequence[Network] = ()


class Socket(Protocol):
    """A WebSocket with text frames."""

    def write(self, frame: bytes) -> None:
        """Write a frame. Never blocks."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Close it after what was written."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """The bytes that were written and wait, because the other reads too slowly."""
        ...

    def drop(self) -> None:
        """Give it up without a word."""
        ...


class Link(Protocol):
    """The link to one peer, as its sockets need it (link_wire.py)."""

    domain: str
    is_test: bool
    life: str
    own_key: int
    round_trip: float

    def key_of(self, kid: str) -> str:
        """The public key of the peer with this id. Raises LinkFault."""
        ...

    def begin(self, connection: LinkConnection) -> None:
        """Called when a socket is proved. Raises LinkFault."""
        ...

    def open(self, connection: LinkConnection, received: int) -> None:
        """Called when both are ready; the other has so many batches. Raises LinkFault."""
        ...

    def carry(self, connection: LinkConnection, text: bytes) -> None:
        """Called with each batch. Raises LinkFault."""
        ...

    def acknowledged(self, connection: LinkConnection, ack: protocol.Ack) -> None:
        """Called with each acknowledgement. Raises LinkFault."""
        ...

    def has_gap(self) -> None:
        """Called when the peer has lost updates."""
        ...

    def close(self, connection: LinkConnection, fault: LinkFault) -> None:
        """Called when a socket has ended."""
        ...


Find = Callable[[str], Link]
"""Finds the link to a domain. Raises LinkFault."""


class LinkConnection:
    """One socket of a link, from its first frame on.

    Args:
        socket: the socket.
        own: this node.
        find: finds the link, once the other has said its domain.
        link: the link for which this node has dialled.
    """

    def __init__(self, socket: Socket, own: OwnNode, find: Find, link: Link | None = None) -> None:
        self.fault: LinkFault | None = None
        self.kid = self.life = ""
        self.max_frame = 0
        self.is_of_lower = False
        self._socket = socket
        self._own = own
        self._find = find
        self._link = link
        self._has_dialled = link is not None
        self._mine = self._theirs = b""
        self._hello: Hello | None = None
        self._ready: Ready | None = None
        self._is_open = False
        self._heard_at = time.monotonic()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HANDSHAKE_SECONDS, self._is_late)
        if link is not None:
            self._mine = self._own_hello(link)
            self.write(b'{"hello":%b}' % self._mine)

    @property
    def is_unproved(self) -> bool:
        """Whether it is still to be proved."""
        return not self.life and self.fault is None

    @property
    def was_silent(self) -> bool:
        """Whether nothing was heard of it lately."""
        return time.monotonic() - self._heard_at > LATELY_SECONDS

    @property
    def _reads_nothing(self) -> bool:
        """Whether more is written than a window, and the answers to what came meanwhile."""
        return self._socket.unsent_bytes > self._own.max_frame + 2 * protocol.CREDIT

    def write(self, text: bytes) -> None:
        """Write a frame."""
        self._socket.write(text)

    def end(self, fault: LinkFault) -> None:
        """Close it, and tell the other why."""
        if self.fault is None:
            reason = fault.why.encode()[:120].decode(errors="ignore")
            self._socket.close(fault.code, reason)
            self.lost(fault)

    def lost(self, fault: LinkFault) -> None:
        """Note that it has ended."""
        if self.fault is None:
            self.fault = fault
            self._timer.cancel()
            if self._link is not None:
                self._link.close(self, fault)

    def received(self, text: bytes) -> None:
        """Process a frame; what is wrong with it ends this socket."""
        if self.fault is not None:
            return
        self._heard_at = time.monotonic()
        try:
            if self._is_open and self._link is not None and text.startswith(b'{"send":'):
                self._link.carry(self, text)
            else:
                self._take(protocol.read(text))
        except LinkFault as fault:
            self.end(fault)
        except Exception as error:
            FAULTS.note("link", error)
            self.end(LinkFault(protocol.BAD_FRAME, "the node failed at it"))

    def say_ready(self, ready: Ready) -> None:
        """Say what this node has, with its proof if it has dialled."""
        said = protocol.encode(ready)
        if self._has_dialled:
            self.write(b'{"proof":"%b","ready":%b}' % (self._signed("dialled").encode(), said))
        else:
            self.write(b'{"ready":%b}' % said)
            self._opens()

    # --- its frames -------------------------------------------------------------------------------

    def _take(self, frame: Frame) -> None:
        link = self._link
        if frame.hello is not EMPTY and self._hello is None:
            self._greeted(bytes(frame.hello), frame.proof)
        elif frame.proof and not self._has_dialled and not self.life:
            self._proved(frame.proof, frame.ready)
        elif frame.ready is not None and self._has_dialled and self._ready is None and self.life:
            self._ready = frame.ready
            self._opens()
        elif not self._is_open or link is None:
            raise LinkFault(protocol.BAD_FRAME, "it is not proved yet")
        elif frame.ack is not None:
            link.acknowledged(self, frame.ack)
        elif frame.ping is not None:
            if self._reads_nothing:
                raise LinkFault(protocol.TOO_LARGE, _UNREAD)
            self.write(b'{"pong":%b}' % protocol.encode(frame.ping))
        elif frame.pong is not None:
            passed = time.monotonic() - frame.pong
            link.round_trip = min(max(0.0, passed), SILENCE_SECONDS)
        elif frame.gap is not None:
            link.has_gap()
        else:
            raise LinkFault(protocol.BAD_FRAME, "a frame that says nothing")

    def _greeted(self, text: bytes, proof: str) -> None:
        """Answer the hello of who has dialled; or begin, if it is the answer, and proved."""
        hello = self._hello = protocol.read_hello(text, self._own.domain, time.time())
        self._theirs = text
        link = self._link or self._find(hello.sender)
        if hello.sender != link.domain:
            raise LinkFault(protocol.BAD_NAME, f"{link.domain} was dialled, {hello.sender} came")
        if self._has_dialled:
            self._check(link, "answered", proof)
            if link.is_test:
                self.say_ready(Ready(hello.life, 0))
            else:
                self._begin(link, hello)
            return
        link.key_of(hello.kid)
        self._link = link
        self._mine = self._own_hello(link)
        signed = self._signed("answered").encode()
        self.write(b'{"hello":%b,"proof":"%b"}' % (self._mine, signed))

    def _proved(self, proof: str, ready: Ready | None) -> None:
        """Begin with who has dialled, whose hello was answered."""
        if self._link is None or self._hello is None or ready is None:
            raise LinkFault(protocol.BAD_FRAME, "a proof without a hello")
        self._check(self._link, "dialled", proof)
        self._ready = ready
        if self._hello.is_test:
            raise LinkFault(protocol.PASSED, "the test has passed")
        self._begin(self._link, self._hello)

    def _check(self, link: Link, role: str, proof: str) -> None:
        assert self._hello is not None  # noqa: S101  (for mypy)
        if not link_keys.is_by(link.key_of(self._hello.kid), self._to_sign(role), proof):
            raise LinkFault(protocol.BAD_PROOF, f"the proof is not by the key {self._hello.kid}")

    def _begin(self, link: Link, hello: Hello) -> None:
        dialled_by = self._own.domain if self._has_dialled else hello.sender
        self.is_of_lower = dialled_by == min(self._own.domain, hello.sender)
        self.kid, self.life, self.max_frame = hello.kid, hello.life, hello.max_frame
        link.begin(self)

    def _opens(self) -> None:
        link, ready = self._link, self._ready
        if link is None or ready is None or ready.life != link.life:
            raise LinkFault(protocol.BAD_FRAME, "ready for another life")
        self._is_open = True
        self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(HEARTBEAT_SECONDS, self._beat)
        link.open(self, ready.received)

    def _own_hello(self, link: Link) -> bytes:
        key = self._own.keys[link.own_key]
        nonce, now = secrets.token_urlsafe(24), time.time()
        hello = Hello(
            self._own.domain, link.domain, nonce, key.kid, now, link.life,
            max_frame=self._own.max_frame, is_test=link.is_test,
        )  # fmt: skip
        self._key = key
        return protocol.encode(hello)

    def _to_sign(self, role: str) -> bytes:
        both = (self._mine, self._theirs)
        return protocol.to_sign(role, *(both if self._has_dialled else both[::-1]))

    def _signed(self, role: str) -> str:
        return self._key.sign(self._to_sign(role))

    def _is_late(self) -> None:
        self.end(LinkFault(protocol.LATE, f"no proof within {HANDSHAKE_SECONDS:g} s"))

    def _beat(self) -> None:
        silent = time.monotonic() - self._heard_at
        if silent >= SILENCE_SECONDS:
            self.lost(LinkFault(protocol.LATE, f"nothing was heard for {SILENCE_SECONDS:g} s"))
            self._socket.drop()
            return
        if self._reads_nothing:
            self.end(LinkFault(protocol.TOO_LARGE, _UNREAD))
            return
        self.write(b'{"ping":%b}' % protocol.encode(time.monotonic()))
        self._timer = asyncio.get_running_loop().call_later(HEARTBEAT_SECONDS, self._beat)


class DialledSocket:
    """A socket that this node has opened."""

    def __init__(self, client: ClientConnection) -> None:
        self._client = client
        self._closing: asyncio.Task[None] | None = None

    def write(self, frame: bytes) -> None:
        """Write a frame at once; what is buffered is bounded by LinkConnection."""
        client = self._client
        if self._closing is None and client.state is State.OPEN:
            client.protocol.send_text(frame)
            client.send_data()

    def close(self, code: int, reason: str) -> None:
        """Close it after what was written."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._client.close(code, reason))

    @property
    def unsent_bytes(self) -> int:
        """The bytes that were written and wait, because the other reads too slowly."""
        return self._client.transport.get_write_buffer_size()

    def drop(self) -> None:
        """Give it up without a word."""
        self._client.transport.abort()

    async def run(self, receiver: Callable[[bytes], None]) -> None:
        """Pass each frame on until it is closed."""
        try:
            while True:
                receiver(await self._client.recv(decode=False))
        except ConnectionClosed:
            pass
        finally:
            if self._closing is not None:
                self._closing.cancel()
            self._client.transport.abort()


# --- the end where sockets are accepted -----------------------------------------------------------
class LinkEndpoint:
    """The endpoint of one worker, an ASGI application.

    Args:
        own: this node.
        find: finds the link to a domain.
    """

    def __init__(self, own: OwnNode, find: Find) -> None:
        self._own = own
        self._find = find
        self._unproved: dict[LinkConnection, str] = {}  # and its source, oldest first

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[dict[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        """Serve one socket from its upgrade to its end."""
        await receive()
        if protocol.SUBPROTOCOL not in (scope.get("subprotocols") or ()):
            await send({"type": "websocket.close", "code": 4403})
            return
        await send({"type": "websocket.accept", "subprotocol": protocol.SUBPROTOCOL})
        link = scope["extensions"]["msgnode.link"]
        connection = LinkConnection(link, self._own, self._find)
        unproved = {each: of for each, of in self._unproved.items() if each.is_unproved}
        if len(unproved) >= HANDSHAKES_AT_ONCE:
            [(most, _)] = Counter(unproved.values()).most_common(1)
            oldest = next(each for each, of in unproved.items() if of == most)
            oldest.end(LinkFault(protocol.LATE, "too many come at once"))
        unproved[connection] = source_of((scope.get("client") or [""])[0])
        self._unproved = unproved
        try:
            await link.run(connection.received)
        finally:
            self._unproved.pop(connection, None)
            connection.lost(LinkFault(protocol.ABSENT, ""))


def keys_of_this_node() -> list[OwnKey]:
    """The keys of this node, as the settings have them."""
    return link_keys.own_keys(
        [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS], settings.DOMAIN
    )


@require_safe
@never_cache
def own_node(request: HttpRequest) -> HttpResponse:
    """`/.well-known/rethink-node`: the public keys of this node, 404 if it makes no links."""
    if settings.FEDERATION == "off":
        return HttpResponse(status=404)
    return JsonResponse(link_keys.document(keys_of_this_node(), settings.DOMAIN, time.time()))
