"""The link to one node of this software: it is dialled or accepted, proved, resumed, and watched.

Rules
- Both nodes dial. Of two sockets the one that the domain lower in the alphabet has dialled stays,
  unless nothing was heard of it lately.
- Each proves by a key that counts (link_keys.py) that it is the node of its domain: it signs both
  hellos, with its role. Nothing is carried before.
- What the other says is carried as soon as it comes, and acknowledged once the node has taken it:
  together with a batch, else after ACK_SECONDS.
- A socket that is silent for SILENCE_SECONDS is given up. The next one goes on where it ended.
- Each fault ends one socket, with a code and words that both operators see.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from msgnode.core.back_off import BackOff
from msgnode.core.envelope import EMPTY
from msgnode.core.faults import FAULTS
from msgnode.net.http import Network, NotAllowed
from msgnode.net.web_socket import open_socket

from . import link_keys
from . import link_protocol as protocol
from .link_keys import Keys, OwnKey
from .link_protocol import Frame, Hello, Inbox, LinkFault, Outbox, Ready

HANDSHAKE_SECONDS = 5.0
HEARTBEAT_SECONDS, SILENCE_SECONDS = 5.0, 20.0
ACK_SECONDS = 0.005
LATELY_SECONDS = 2.0
"""A socket of which nothing was heard for longer gives way to any other that is proved."""
GRACE_SECONDS = 0.3
"""After a loss the other one dials first."""
STABLE_SECONDS = 1.0
"""A link that was open for so long is dialled again at once; one that was not, after a pause."""
ELSEWHERE_SECONDS, ELSEWHERE_TIMES = 0.03, 60
"""How soon, and how often, it is dialled again to meet the worker that serves this domain there."""
_REFUSALS = (
    protocol.BAD_PROOF, protocol.NOT_ALLOWED, protocol.BAD_VERSION, protocol.BAD_NAME,
)  # fmt: skip


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

    def drop(self) -> None:
        """Give it up without a word."""
        ...


class Peer(Protocol):
    """Whoever serves the peer, as its link needs it."""

    def opened(self, is_new: bool) -> None:
        """Called when messages pass; `is_new`: nothing from before goes on."""
        ...

    def lost(self, fault: LinkFault) -> None:
        """Called when none pass any more, or the link cannot be made."""
        ...

    def said(self, text: bytes) -> None:
        """Called with each message of the peer."""
        ...

    def has_room(self) -> None:
        """Called when more may be sent."""
        ...

    def gap(self) -> None:
        """Called when the peer has lost updates."""
        ...

    def key_is_unknown(self) -> None:
        """Called when the peer has another key than those that count."""
        ...

    def renew(self) -> None:
        """Forget what the peer held here, because its life is a new one."""
        ...

    async def ready(self) -> None:
        """Wait until the node takes more of the peer."""
        ...

    @property
    def is_held_back(self) -> bool:
        """Whether it takes no more at the moment."""
        ...


class Wire:
    """The link to one peer. One instance per peer that this worker serves.

    Args:
        own: this node.
        domain: the peer's domain.
        url: the URL of the peer's node.
        peer: whoever serves it.
        is_test: whether it only proves who the nodes are, and carries nothing.
    """

    def __init__(
        self, own: OwnNode, domain: str, url: str, peer: Peer, is_test: bool = False
    ) -> None:
        self.own = own
        self.domain = domain
        self.url = url
        self.keys: Keys = {}
        self.current: LinkConnection | None = None
        self.is_open = False
        self.error = ""
        self.life = uuid.uuid4().hex
        self.round_trip = 0.0
        self.outbox, self.inbox = Outbox(), Inbox()
        self.own_key = 0
        self.is_test = is_test
        self._peer = peer
        self._peer_life = ""
        self._is_new = True
        self._was_open = False
        self._back_off = BackOff(0.1, 30.0, STABLE_SECONDS)
        self._opened_at = 0.0
        self._elsewhere = 0
        self._nudged = asyncio.Event()
        self._flush_soon: asyncio.Handle | None = None
        self._ack_soon: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # --- its life ---------------------------------------------------------------------------------

    def trust(self, keys: Keys) -> None:
        """Set the keys of the peer that count; a link that was proved by another one ends."""
        if keys == self.keys:
            return
        self.keys = keys
        if self.current is not None and self.current.kid not in keys:
            self.current.end(LinkFault(protocol.BAD_PROOF, "the key was revoked"))
        self.hurry()

    def hurry(self) -> None:
        """Dial at once."""
        self._back_off.reset()
        self._nudged.set()

    def end(self, fault: LinkFault) -> None:
        """End the socket, if there is one."""
        if self.current is not None:
            self.current.end(fault)

    def begin_anew(self) -> None:
        """Begin another life: drop what is unacknowledged. Whoever serves the peer answers it."""
        self.life, self._peer_life, self._is_new = uuid.uuid4().hex, "", True
        self.outbox, self.inbox = Outbox(), Inbox()

    async def run(self) -> None:
        """Dial whenever there is no link, until cancelled."""
        while True:
            pause = math.inf
            if self.keys and self.current is None:
                if self._was_open and self.own.domain > self.domain:
                    await asyncio.sleep(GRACE_SECONDS)
                self._was_open = False
                self._nudged.clear()
                if self.current is None:
                    pause = self._pause_after(await self.dial())
            with suppress(TimeoutError):
                async with asyncio.timeout(None if pause == math.inf else pause):
                    await self._nudged.wait()
            self._nudged.clear()

    def stop(self) -> None:
        """Leave the peer."""
        self.end(LinkFault(1001, "the peer is served no more, or by another worker"))
        for task in list(self._tasks):
            task.cancel()

    def _pause_after(self, fault: LinkFault) -> float:
        """Seconds until it is dialled again."""
        if self.is_open or self._was_open:
            if self.current is not None:
                return math.inf
            is_stable = time.monotonic() - self._opened_at >= STABLE_SECONDS
            return 0.0 if is_stable else self._back_off.failed()
        if fault.code == protocol.ELSEWHERE and self._elsewhere < ELSEWHERE_TIMES:
            self._elsewhere += 1
            return ELSEWHERE_SECONDS
        self._elsewhere = 0
        if fault.code == protocol.BAD_PROOF:  # the other may know an earlier key of this node only
            self.own_key = (self.own_key + 1) % len(self.own.keys)
        self.error = str(fault)
        self._peer.lost(fault)
        return self._back_off.failed()

    async def dial(self) -> LinkFault:
        """Dial, and serve the socket until it ends; return why."""
        base = self.url.rstrip("/") or f"https://{self.domain}"
        url = f"ws{base.removeprefix('http')}/{protocol.PATH}"
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                client = await open_socket(
                    url, self.own.networks, subprotocols=[Subprotocol(protocol.SUBPROTOCOL)],
                    max_size=self.own.max_frame, max_queue=16,
                )  # fmt: skip
        except InvalidStatus as error:
            status = error.response.status_code
            return LinkFault(protocol.NOT_ALLOWED, f"the upgrade was answered {status}")
        except NotAllowed as error:
            return LinkFault(protocol.NOT_ALLOWED, str(error))
        except (OSError, TimeoutError, WebSocketException) as error:
            why = str(error) or f"no answer within {HANDSHAKE_SECONDS:g} s"
            return LinkFault(1006, f"{url}: {why}")
        dialled = DialledSocket(client)
        connection = LinkConnection(dialled, self.own, lambda _: self, self)
        try:
            await dialled.run(connection.received)
        finally:
            words = LinkFault(client.close_code or 1006, client.close_reason or "")
            connection.lost(words)
        return connection.fault or words

    def figures(self) -> dict[str, Any]:
        """How it is, for display; `key` has proved it, and counts since `key_since`."""
        batches, size, oldest = self.outbox.unacknowledged
        kid = self.current.kid if self.current is not None else ""
        return {
            "open": self.is_open, "error": self.error,
            "unacknowledged": batches, "unacknowledged_bytes": size, "window": protocol.WINDOW,
            "oldest_unacknowledged_ms": round(oldest * 1000, 1),
            "round_trip_ms": round(self.round_trip * 1000, 1),
            "key": kid, "key_since": self.keys[kid]["since"] if kid in self.keys else 0,
        }  # fmt: skip

    # --- a socket ---------------------------------------------------------------------------------

    def key_of(self, kid: str) -> str:
        """The public key of the peer with this id. Raises LinkFault."""
        if not self.keys:
            why = f"no key of {self.domain} counts at {self.own.domain}"
            raise LinkFault(protocol.NOT_ALLOWED, why)
        key = self.keys.get(kid)
        if key is None:
            self._peer.key_is_unknown()
            why = f"key {kid[:16]} of {self.domain} is unknown or withdrawn at {self.own.domain}"
            raise LinkFault(protocol.BAD_PROOF, why)
        return str(key["x"])

    def begin(self, connection: LinkConnection) -> None:
        """Have a socket that was proved take the place of the one before. Raises LinkFault."""
        before = self.current
        if before is not None and not (connection.is_of_lower or before.was_silent):
            raise LinkFault(protocol.REPLACED, "there is a link already")
        self.current, self.is_open = connection, False
        if before is not None:
            before.end(LinkFault(protocol.REPLACED, "another socket takes its place"))
        if connection.life != self._peer_life:
            if self._peer_life:
                self.outbox, self.inbox, self._is_new = Outbox(), Inbox(), True
            self._peer_life = connection.life
        self._do(self._begun(connection))

    async def _begun(self, connection: LinkConnection) -> None:
        if self._is_new:
            self._peer.renew()
        await self._peer.ready()
        if self.current is connection:
            self.inbox.carried = self.inbox.received
            connection.say_ready(Ready(self._peer_life, self.inbox.received))

    def open(self, connection: LinkConnection, received: int) -> None:
        """Let messages pass; the other has so many batches. Raises LinkFault."""
        if self.current is not connection:
            return
        for text in self.outbox.again(received):
            connection.write(text)
        self._back_off.succeeded()
        self._opened_at = time.monotonic()
        self._elsewhere, self.error = 0, ""
        self.is_open = self._was_open = True
        is_new, self._is_new = self._is_new, False
        self._peer.opened(is_new)
        self._flush()

    def close(self, connection: LinkConnection, fault: LinkFault) -> None:
        """Note that a socket has ended."""
        if self.current is not connection:
            return
        self.current = None
        self.error = str(fault)
        if self.is_open:
            self.is_open = False
            self._peer.lost(fault)
        self._nudged.set()

    def _do(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            FAULTS.note("link", error)
            self.end(LinkFault(protocol.BAD_FRAME, "the node failed at it"))

    # --- batches ----------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether a message may be sent now."""
        return self.is_open and self.outbox.has_room

    @property
    def largest(self) -> int:
        """The bytes of the largest message that the peer takes."""
        limit = self.current.max_frame if self.current is not None else 0
        return (limit or self.own.max_frame) - protocol.OVERHEAD

    def send(self, item: bytes) -> None:
        """Send a message: at once if nothing is unacknowledged, else with those that follow."""
        outbox = self.outbox
        outbox.add(item)
        if not outbox.has_room:
            self._flush()
        elif self._flush_soon is None:
            loop = asyncio.get_running_loop()
            self._flush_soon = (
                loop.call_soon(self._flush)
                if outbox.is_idle
                else loop.call_later(protocol.COLLECT_SECONDS, self._flush)
            )

    def tell_of_gap(self) -> None:
        """Tell the peer that updates for it were lost."""
        if self.current is not None and self.is_open:
            self.current.write(b'{"gap":{}}')

    def _flush(self) -> None:
        if self._flush_soon is not None:
            self._flush_soon.cancel()
            self._flush_soon = None
        connection = self.current
        if connection is None or not self.is_open:
            return
        while (text := self.outbox.seal(self.inbox.carried)) is not None:
            if self._ack_soon is not None:
                self._ack_soon.cancel()
                self._ack_soon = None
            connection.write(text)

    def carry(self, connection: LinkConnection, text: bytes) -> None:
        """Carry a batch of the peer. Raises LinkFault."""
        if self.current is not connection:
            return
        batch = protocol.read(text).send
        if batch is None:
            raise LinkFault(protocol.BAD_FRAME, "a batch that is none")
        items = self.inbox.take(text, batch)
        self.outbox.acknowledged(batch.ack)
        said = self._peer.said
        for item in items:
            try:
                said(bytes(item))
            except Exception as error:  # the others of the batch are not its owner's
                FAULTS.note("link", error)
        if self._peer.is_held_back:
            self._do(self._carried_later(self.inbox, batch.seq))
        else:
            self._carried(batch.seq)
        self._acknowledged()

    async def _carried_later(self, inbox: Inbox, seq: int) -> None:
        await self._peer.ready()
        if self.inbox is inbox:
            self._carried(seq)

    def _carried(self, seq: int) -> None:
        inbox = self.inbox
        inbox.carried = max(inbox.carried, seq)
        if self._ack_soon is None:
            loop = asyncio.get_running_loop()
            self._ack_soon = loop.call_later(ACK_SECONDS, self._acknowledge)

    def _acknowledge(self) -> None:
        self._ack_soon = None
        if self.current is not None and self.is_open:
            self.current.write(b'{"ack":{"seq":%d}}' % self.inbox.carried)

    def acknowledged(self, connection: LinkConnection, ack: protocol.Ack) -> None:
        """Process an acknowledgement. Raises LinkFault."""
        if self.current is connection:
            self.outbox.acknowledged(ack.seq, ack.credit)
            self._acknowledged()

    def _acknowledged(self) -> None:
        outbox = self.outbox
        if outbox.is_idle or not outbox.has_room:
            self._flush()
        if outbox.has_room:
            self._peer.has_room()

    def has_gap(self) -> None:
        """Note that the peer has lost updates."""
        self._peer.gap()


Find = Callable[[str], Wire]
"""Finds the link to a domain. Raises LinkFault."""


class LinkConnection:
    """One socket of a link, from its first frame on.

    Args:
        socket: the socket.
        own: this node.
        find: finds the link, once the other has said its domain.
        wire: the link for which this node has dialled.
    """

    def __init__(self, socket: Socket, own: OwnNode, find: Find, wire: Wire | None = None) -> None:
        self.fault: LinkFault | None = None
        self.kid = self.life = ""
        self.max_frame = 0
        self.is_of_lower = False
        self._socket = socket
        self._own = own
        self._find = find
        self._wire = wire
        self._has_dialled = wire is not None
        self._mine = self._theirs = b""
        self._hello: Hello | None = None
        self._proof = ""
        self._ready: Ready | None = None
        self._is_open = False
        self._heard_at = time.monotonic()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HANDSHAKE_SECONDS, self._is_late)
        if wire is not None:
            self._mine = self._own_hello(wire)
            self.write(b'{"hello":%b}' % self._mine)

    @property
    def is_unproved(self) -> bool:
        """Whether it is still to be proved."""
        return not self.life and self.fault is None

    @property
    def was_silent(self) -> bool:
        """Whether nothing was heard of it lately."""
        return time.monotonic() - self._heard_at > LATELY_SECONDS

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
            if self._wire is not None:
                self._wire.close(self, fault)

    def received(self, text: bytes) -> None:
        """Process a frame; what is wrong with it ends this socket."""
        if self.fault is not None:
            return
        self._heard_at = time.monotonic()
        try:
            if self._is_open and self._wire is not None and text.startswith(b'{"send":'):
                self._wire.carry(self, text)
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
        wire = self._wire
        if frame.hello is not EMPTY and self._hello is None:
            self._greeted(bytes(frame.hello), frame.proof)
        elif frame.proof and not self._has_dialled and not self.life:
            self._proved(frame.proof, frame.ready)
        elif frame.ready is not None and self._has_dialled and self._ready is None and self.life:
            self._ready = frame.ready
            self._opens()
        elif not self._is_open or wire is None:
            raise LinkFault(protocol.BAD_FRAME, "it is not proved yet")
        elif frame.ack is not None:
            wire.acknowledged(self, frame.ack)
        elif frame.ping is not None:
            self.write(b'{"pong":%b}' % protocol.encode(frame.ping))
        elif frame.pong is not None:
            wire.round_trip = max(0.0, time.monotonic() - frame.pong)
        elif frame.gap is not None:
            wire.has_gap()
        else:
            raise LinkFault(protocol.BAD_FRAME, "a frame that says nothing")

    def _greeted(self, text: bytes, proof: str) -> None:
        """Answer the hello of who has dialled; or begin, if it is the answer, and proved."""
        hello = self._hello = protocol.read_hello(text, self._own.domain, time.time())
        self._theirs = text
        wire = self._wire or self._find(hello.sender)
        if hello.sender != wire.domain:
            raise LinkFault(protocol.BAD_NAME, f"{wire.domain} was dialled, {hello.sender} came")
        if self._has_dialled:
            self._check(wire, "answered", proof)
            if wire.is_test:
                self.say_ready(Ready(hello.life, 0))
            else:
                self._begin(wire, hello)
            return
        wire.key_of(hello.kid)
        self._wire = wire
        self._mine = self._own_hello(wire)
        signed = self._signed("answered").encode()
        self.write(b'{"hello":%b,"proof":"%b"}' % (self._mine, signed))

    def _proved(self, proof: str, ready: Ready | None) -> None:
        """Begin with who has dialled, whose hello was answered."""
        if self._wire is None or self._hello is None or ready is None:
            raise LinkFault(protocol.BAD_FRAME, "a proof without a hello")
        self._check(self._wire, "dialled", proof)
        self._ready = ready
        if self._hello.is_test:
            raise LinkFault(protocol.PASSED, "the test has passed")
        self._begin(self._wire, self._hello)

    def _check(self, wire: Wire, role: str, proof: str) -> None:
        assert self._hello is not None  # noqa: S101  (for mypy)
        if not link_keys.is_by(wire.key_of(self._hello.kid), self._to_sign(role), proof):
            raise LinkFault(protocol.BAD_PROOF, f"the proof is not by the key {self._hello.kid}")

    def _begin(self, wire: Wire, hello: Hello) -> None:
        dialled_by = self._own.domain if self._has_dialled else hello.sender
        self.is_of_lower = dialled_by == min(self._own.domain, hello.sender)
        self.kid, self.life, self.max_frame = hello.kid, hello.life, hello.max_frame
        wire.begin(self)

    def _opens(self) -> None:
        wire, ready = self._wire, self._ready
        if wire is None or ready is None or ready.life != wire.life:
            raise LinkFault(protocol.BAD_FRAME, "ready for another life")
        self._is_open = True
        self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(HEARTBEAT_SECONDS, self._beat)
        wire.open(self, ready.received)

    def _own_hello(self, wire: Wire) -> bytes:
        key = self._own.keys[wire.own_key]
        nonce, now = secrets.token_urlsafe(24), time.time()
        hello = Hello(
            self._own.domain, wire.domain, nonce, key.kid, now, wire.life,
            max_frame=self._own.max_frame, is_test=wire.is_test,
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
        self.write(b'{"ping":%b}' % protocol.encode(time.monotonic()))
        self._timer = asyncio.get_running_loop().call_later(HEARTBEAT_SECONDS, self._beat)


class DialledSocket:
    """A socket that this node has opened."""

    def __init__(self, client: ClientConnection) -> None:
        self._client = client
        self._frames: deque[bytes] = deque()
        self._end: tuple[int, str] | None = None
        self._wake = asyncio.Event()

    def write(self, frame: bytes) -> None:
        """Write a frame, in the next turn of the loop."""
        self._frames.append(frame)
        self._wake.set()

    def close(self, code: int, reason: str) -> None:
        """Close it after what was written."""
        self._end = self._end or (code, reason)
        self._wake.set()

    def drop(self) -> None:
        """Give it up without a word."""
        self._client.transport.abort()

    async def run(self, receiver: Callable[[bytes], None]) -> None:
        """Pass each frame on until it is closed."""
        writing = asyncio.create_task(self._write())
        try:
            while True:
                receiver(await self._client.recv(decode=False))
        except ConnectionClosed:
            pass
        finally:
            writing.cancel()
            self._client.transport.abort()

    async def _write(self) -> None:
        client, frames = self._client, self._frames
        with suppress(ConnectionClosed):
            while True:
                await self._wake.wait()
                self._wake.clear()
                while frames:
                    await client.send(frames.popleft(), text=True)
                if self._end is not None:
                    await client.close(*self._end)
                    return
