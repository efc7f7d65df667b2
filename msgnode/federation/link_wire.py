"""The link to one node of this software: it is dialled, resumed, and sends numbered batches.

Rules
- Both nodes dial. Of two sockets the one that the domain lower in the alphabet has dialled stays,
  unless nothing was heard of it lately.
- What the other says is carried as soon as it comes, and acknowledged once the node has taken it:
  together with a batch, else after ACK_SECONDS, or when it is half of a window.
- After the loss of a socket (link_socket.py) the next one goes on where it ended.
"""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from contextlib import suppress
from typing import Any, Protocol

from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from msgnode.core.back_off import BackOff
from msgnode.core.faults import FAULTS
from msgnode.net.http import NotAllowed
from msgnode.net.web_socket import open_socket

from . import link_protocol as protocol
from .link_keys import Keys
from .link_protocol import Inbox, LinkFault, Outbox, Ready
from .link_socket import HANDSHAKE_SECONDS, DialledSocket, LinkConnection, OwnNode

ACK_SECONDS = 0.005
GRACE_SECONDS = 0.3
"""After a loss the other one dials first."""
STABLE_SECONDS = 1.0
"""A link that was open for so long is dialled again at once; one that was not, after a pause."""
ABSENT_SECONDS = 2.0
"""Most seconds until a node that could not be reached is dialled again: it may be back any time."""
ELSEWHERE_SECONDS, ELSEWHERE_TIMES = 0.03, 60
"""How soon, and how often, it is dialled again to meet the worker that serves this domain there."""


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
        self.largest = 0  # bytes of a message that the peer takes, while it is open
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
        self._absences = BackOff(0.1, ABSENT_SECONDS, STABLE_SECONDS)
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
        self._absences.reset()
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
        self.end(LinkFault(protocol.LEAVES, "the peer is served no more, or by another worker"))
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
        return (self._absences if fault.code == protocol.ABSENT else self._back_off).failed()

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
            is_absent = status >= 500  # what a proxy says while the node starts
            code = protocol.ABSENT if is_absent else protocol.NOT_ALLOWED
            return LinkFault(code, f"the upgrade was answered {status}")
        except NotAllowed as error:
            return LinkFault(protocol.NOT_ALLOWED, str(error))
        except (OSError, TimeoutError, WebSocketException) as error:
            why = str(error) or f"no answer within {HANDSHAKE_SECONDS:g} s"
            return LinkFault(protocol.ABSENT, f"{url}: {why}")
        dialled = DialledSocket(client)
        connection = LinkConnection(dialled, self.own, lambda _: self, self)
        try:
            await dialled.run(connection.received)
        finally:
            words = LinkFault(client.close_code or protocol.ABSENT, client.close_reason or "")
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
            self.inbox.carried = self.inbox.acknowledged = self.inbox.received
            connection.say_ready(Ready(self._peer_life, self.inbox.received))

    def open(self, connection: LinkConnection, received: int) -> None:
        """Let messages pass; the other has so many batches. Raises LinkFault."""
        if self.current is not connection:
            return
        for text in self.outbox.again(received):
            connection.write(text)
        self._back_off.succeeded()
        self._absences.succeeded()
        self._opened_at = time.monotonic()
        self._elsewhere, self.error = 0, ""
        self.is_open = self._was_open = True
        self.largest = (connection.max_frame or self.own.max_frame) - protocol.OVERHEAD
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

    def send(self, item: bytes) -> None:
        """Send a message: at once while few are sent, else with those that follow."""
        outbox = self.outbox
        outbox.add(item)
        if not outbox.has_room:
            self._flush()
        elif self._flush_soon is None:
            loop = asyncio.get_running_loop()
            self._flush_soon = (
                loop.call_soon(self._flush)
                if outbox.is_quiet
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
            self._acknowledges()
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
        if inbox.carried - inbox.acknowledged >= protocol.WINDOW // 2:
            self._acknowledge()
        elif self._ack_soon is None:
            loop = asyncio.get_running_loop()
            self._ack_soon = loop.call_later(ACK_SECONDS, self._acknowledge)

    def _acknowledge(self) -> None:
        seq = self._acknowledges()
        if self.current is not None and self.is_open:
            self.current.write(b'{"ack":{"seq":%d}}' % seq)

    def _acknowledges(self) -> int:
        """The number up to which the other's batches were carried, which it is told now."""
        if self._ack_soon is not None:
            self._ack_soon.cancel()
            self._ack_soon = None
        self.inbox.acknowledged = self.inbox.carried
        return self.inbox.carried

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
