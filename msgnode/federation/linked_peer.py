"""A peer whose node is one of this software: messages pass over a link to it (link_wire.py).

Queue, sent requests, session, subscriptions and limits are those of any peer; only what carries the
messages differs. Rules
- While the keys of its node are not trusted, or no link has come about for PATIENCE_SECONDS, its
  stub serves, as for any peer. A link that comes about later takes its place: messages wait for a
  moment, and the stub has some seconds for what it still owes.
- After a loss of the socket all goes on with the next one. What was sent and not answered when
  either node's life has ended, or after PATIENCE_SECONDS without a link, is answered 503; stored
  requests return to the head of the queue.
- The node there subscribes at this one as its session here, until its life ends.
- A request that is not carried here is answered.
- A message to the node there says whose identity this one has verified, if any; what that node says
  counts if an operator trusts it (crossing.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from msgnode.core import addresses, messages
from msgnode.core.envelope import InvalidFrame
from msgnode.core.errors import BadMessage, Forbidden, NodeError
from msgnode.core.messages import Message
from msgnode.sandbox import pipe, process
from msgnode.subscriptions import rules

from .held_subscriptions import BATCH, MAX_NAMED, SM
from .link_keys import Keys
from .link_protocol import LEAVES, LinkFault
from .link_socket import OwnNode
from .link_wire import Wire
from .peer import PeerLink
from .queue import REQUEST, class_of
from .states import (
    CONNECTING,
    DISCONNECTED,
    GAP,
    IDLE,
    LIVE,
    STARTING,
    WAITING,
    Event,
    read_status,
)
from .stub import PeerStub

PATIENCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class LinkTo:
    """Where the link leads.

    Attributes:
        own: this node.
        url: of the node there, "" if that is https://<domain>.
        look: has the keys of the node there be looked at again.
    """

    own: OwnNode
    url: str
    look: Callable[[], None]


class LinkedPeer(PeerLink):
    """One instance per peer that this worker serves; also the Peer of its link.

    Args:
        to: where the link leads.
        arguments: of PeerLink.
    """

    def __init__(self, to: LinkTo, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._own = to.own.domain
        self.wire = Wire(to.own, self.peer.domain, to.url, self)
        self.key_is_unknown = to.look
        self._sm = SM.format(self._own)
        self._is_by_link = False
        self._lost_at = time.monotonic()
        self._changed = asyncio.Event()
        self._moving: asyncio.Task[None] | None = None
        self._has_moved = False
        self._gaps = self._told_lost = 0
        self._held_there: dict[str, None] = {}  # addresses here that the node there observes

    def carrier(self) -> dict[str, Any]:
        """What carries the messages, and how the link is, for display."""
        way = "link" if self._is_by_link else "stub"
        return {"way": way, "link": self.wire.figures()} if self.wire.keys else {"way": way}

    @property
    def failures_in_a_row(self) -> int:
        """Ends of the sandbox since it was last live for a minute; none while there is none."""
        return 0 if self._is_by_link else super().failures_in_a_row

    # --- its life ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve the peer until cancelled or stopped."""
        self._task = asyncio.current_task()
        dialling = asyncio.create_task(self.wire.run())
        try:
            while not self._is_stopped:
                await self._open_session()
                if self._wants_link:
                    await self._serve_by_link()
                else:
                    await self._serve_once()
        finally:
            dialling.cancel()
            await self._leave()

    @property
    def _has_stub(self) -> bool:
        return bool(self.peer.digest) and bool(process.find_deno())

    @property
    def _wants_link(self) -> bool:
        """Whether the link serves, or may soon: it is open, or there is no other way yet."""
        if self.wire.is_open or not self._has_stub:
            return True
        return bool(self.wire.keys) and time.monotonic() < self._lost_at + PATIENCE_SECONDS

    async def _serve_by_link(self) -> None:
        """Serve it until the link is given up, or its session here has ended."""
        self._is_by_link = True
        self.state = LIVE if self.wire.is_open else CONNECTING
        self._look()
        try:
            while self._wants_link and not (self._is_stopped or self._session.has_ended):
                self._changed.clear()
                pause = None if self.wire.is_open else PATIENCE_SECONDS
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._changed.wait()
                if not self.wire.is_open and time.monotonic() >= self._lost_at + PATIENCE_SECONDS:
                    self._give_up()
        finally:
            self._is_by_link = False
        if self._session.has_ended:  # what the peer has subscribed ended with it
            self.wire.end(LinkFault(LEAVES, "its session here has ended"))
            self.wire.begin_anew()
        self.state = STARTING

    def _give_up(self) -> None:
        """Wait no longer for what was sent and has not been answered."""
        self.wire.begin_anew()
        self.exchange.fail_asked(f"The link to {self.peer.domain} was lost: {self.wire.error}.")
        self._look()

    async def _rest(self) -> None:
        if self._has_moved:
            self._has_moved = False  # the link serves at once
        else:
            await super()._rest()

    async def _move(self) -> None:
        """Have the link take the place of the stub."""
        is_live = self.state == LIVE
        self._happens(Event.IS_REPLACED)
        await self._take_leave(is_live)
        self._restarts.reset()
        if self.state in (WAITING, IDLE):
            self.state = STARTING
        self._has_moved = True
        self._kill("the link to its node takes its place")
        self._may_begin.set()

    async def replace(self, stub: PeerStub) -> None:
        """Replace the stub; while the link serves, it is for later."""
        if self._is_by_link:
            self.peer = stub
        else:
            await super().replace(stub)

    async def _leave(self) -> None:
        if self._moving is not None:
            self._moving.cancel()
        self.wire.stop()
        await super()._leave()

    def hurry(self) -> None:
        """Try to connect at once, ignoring the back-offs."""
        self.wire.hurry()
        super().hurry()

    def restart(self) -> None:
        """Connect anew, for an operator."""
        self._lost_at = time.monotonic()
        self.wire.end(LinkFault(LEAVES, "an operator had it begin anew"))
        super().restart()

    def trust(self, keys: Keys) -> None:
        """Set the keys of the node there that count."""
        if keys and not self.wire.keys:
            self._lost_at = time.monotonic()
        self.wire.trust(keys)
        self._changed.set()

    def _session_closed(self) -> None:
        self._changed.set()
        super()._session_closed()

    # --- to the peer ------------------------------------------------------------------------------

    def _told(self, message: Message) -> None:
        """Note that messages for the peer were lost on the way to its session here."""
        status = read_status(message, f"{self.peer.stub_url}/status")
        if status is not None and status.value == GAP:
            self._gaps += 1
            self._look()

    @property
    def _is_passable(self) -> bool:
        return self.wire.has_room if self._is_by_link else super()._is_passable

    def _pass_on(self, message: Message) -> None:
        wire = self.wire
        is_passable = self._is_by_link and wire.is_open and wire.outbox.has_room
        frame = self.exchange.at_once(message) if is_passable else None
        if frame is None:
            super()._pass_on(message)
        elif len(frame) <= wire.largest:
            wire.send(frame)
        else:
            self._send(frame)

    def _pump(self) -> None:
        """Pass queued messages on, as far as they are accepted."""
        if not self._is_by_link:
            super()._pump()
            return
        while self.wire.has_room and (frame := self.exchange.take(by_link=True)) is not None:
            self._send(frame)

    def _send(self, frame: bytes) -> None:
        if len(frame) <= self.wire.largest:
            self.wire.send(frame)
        else:
            why = f"{self.peer.domain} takes {self.wire.largest} bytes at most."
            self._answer_instead(messages.parse(frame), BadMessage(why))

    def _answer_instead(self, message: Message, error: NodeError) -> None:
        """Answer a request as the peer, which has not got it."""
        if not message.is_response:
            self.said(messages.reply(message, messages.error_body(error)))

    def _post(self, frame: bytes) -> None:
        if self._is_by_link:
            self.wire.send(frame)
        else:
            super()._post(frame)

    def _look(self) -> None:
        super()._look()
        counters = self.exchange.counters
        lost = counters.full + counters.expired + self._gaps
        if lost != self._told_lost and self.wire.is_open:
            self._told_lost = lost
            self.wire.tell_of_gap()

    # --- from the link ----------------------------------------------------------------------------

    def opened(self, is_new: bool) -> None:
        """Messages pass over the link; `is_new`: what was pending does not go on."""
        self._changed.set()
        self.last_error = ""
        if is_new:
            self.exchange.fail_asked(f"The node of {self.peer.domain} has begun anew.")
            self.subscriptions.renew()
        if self._is_by_link:
            self.state = LIVE
            self._look()
        elif self._moving is None or self._moving.done():
            self._moving = asyncio.create_task(self._move())

    def lost(self, fault: LinkFault) -> None:
        """No messages pass over the link."""
        self._changed.set()
        if self._is_by_link:
            if self.state == LIVE:
                self._lost_at = time.monotonic()
            self.state = DISCONNECTED
            self.last_error = pipe.shown(str(fault))
            self._look()

    def has_room(self) -> None:
        """More may be sent."""
        if self.exchange.queue:
            self._pump()

    def gap(self) -> None:
        """The peer has lost updates."""
        self.subscriptions.suspect()
        self._look()

    def renew(self) -> None:
        """The node there has a new life: what its session here has subscribed ends."""
        held, self._held_there = list(self._held_there), {}
        head = {"id": "renewed", "type": "unsubscribe", "from": f"{self.peer.stub_url}/sm"}
        for start in range(0, len(held), BATCH):
            body = {"resources": held[start : start + BATCH]}
            self._session.say(msgspec.json.encode({**head, "to": self._sm, "body": body}))

    @property
    def is_held_back(self) -> bool:
        """Whether this node takes no more of the peer at the moment."""
        return self._session.is_held_back

    async def ready(self) -> None:
        """Wait until it does."""
        await self._session.ready()

    def said(self, text: bytes) -> None:
        """Process a message of the peer."""
        try:
            message = messages.parse(text)
        except InvalidFrame as error:
            self._refused(f"what it sent is no message: {error.description}")
            return
        if message.is_response and self.subscriptions.take(message):
            self.exchange.moved()
            self._set_timer()
        elif message.recipients == (self._sm,) and message.type in ("subscribe", "unsubscribe"):
            self._subscribed(message)
        elif (why := self._taken_in(message, self.peer.vouches)) and class_of(message) is REQUEST:
            self._post(messages.reply(message, messages.error_body(Forbidden(f"{why}."))))

    def _subscribed(self, message: Message) -> None:
        """Have the session of the peer subscribe here what is observed there."""
        sender = addresses.parse(message.sender)
        if sender.scheme != "runtime" or sender.home != self.peer.domain:
            self._refused(f"{message.sender} is not the node of {self.peer.domain}")
            return
        with suppress(BadMessage):
            for each in rules.wanted(message.fields(), MAX_NAMED).exact:
                self._held_there.pop(each, None)
                if message.type == "subscribe" and len(self._held_there) < MAX_NAMED:
                    self._held_there[each] = None
        self._session.say(message.frame)
