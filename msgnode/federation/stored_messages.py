"""Requests that are stored until they get to a peer: those whose body says `store: true`.

Rules
- The row is written while the message waits, or is on its way: nothing waits for the database. Who
  sent one that still waits then is told 100. If it cannot be written, he is told 503.
- The row goes with the response. Until then the worker that serves the peer begins with it, and
  sends it again when a socket was lost: a peer may get it twice, with the same id.
- So many, and so many bytes, are stored for a peer; one beyond is refused 503.
- One whose time is over, or about which the peer is silent for as long as responses are waited for,
  or that is set aside for another reason, is kept for a person to look at, and an alarm says so.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from time import perf_counter
from typing import Any, cast

from django.utils import timezone

from msgnode.bus.ports import Requester, Response
from msgnode.bus.table import RoutingTable
from msgnode.bus.writing import Call, Writer, retrieve_error
from msgnode.core import messages
from msgnode.core.messages import Message
from msgnode.models import StoredMessage

from . import stored_rows
from .peer_exchange import PeerExchange
from .peer_queue import Waiting
from .stored_rows import Seal, Stored

SET_ASIDE_ALARM = "message-set-aside"
_FORGETS_EVERY = 3600.0


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """What is stored for one peer, and for how long."""

    messages: int
    bytes: int
    seconds: float


class PeerStore:
    """Implements the exchange's Store for one peer. Made by StoredMessages."""

    def __init__(self, owner: StoredMessages, peer: int, domain: str, found: list[Stored]) -> None:
        self._owner = owner
        self._peer = peer
        self._domain = domain
        self._found = found
        self._sizes = {each.key: len(each.frame) for each in found}
        self._bytes = sum(self._sizes.values())
        self._exchange: PeerExchange | None = None

    def begin(self, exchange: PeerExchange) -> None:
        """Have what is stored wait in a queue, from now on."""
        self._exchange = exchange
        found, self._found = self._found, []
        for each in found:
            exchange.queue.put_back(messages.parse(each.frame), each.key, each.age, each.left)

    def keep(self, message: Message) -> str:
        """Store a message; its key, or "" if there is no room for it."""
        limits, size = self._owner.limits, len(message.frame)
        if len(self._sizes) >= limits.messages or self._bytes + size > limits.bytes:
            return ""
        key = uuid.uuid4().hex
        self._sizes[key], self._bytes = size, self._bytes + size
        row = StoredMessage(
            peer_id=self._peer, key=key, message_id=stored_rows.shown_id(message),
            type=message.type[:32], sender=message.sender, to=message.recipients[0], size=size,
            until=timezone.now() + timedelta(seconds=limits.seconds),
        )  # fmt: skip
        written = self._owner.write(partial(stored_rows.add, row, message.frame, self._owner.seal))
        written.add_done_callback(partial(self._written, key))
        return key

    def done(self, key: str) -> None:
        """The peer has it: its row goes."""
        if self._release(key):
            self._owner.write(partial(stored_rows.remove, key))

    def set_aside(self, one: Waiting, reason: str) -> None:
        """It was given up: its row stays with the reason, and the operator is told."""
        if self._release(one.key):
            self._owner.write(partial(stored_rows.set_aside, one.key, reason))
            self._owner.tell(self._domain, reason)

    def answering(self, message: Message) -> None:
        """The peer is about to be asked: have the sender remembered, whose request may be old."""
        self._owner.ask_again(message)

    def _written(self, key: str, written: asyncio.Future[Any]) -> None:
        exchange = self._exchange
        if written.cancelled() or exchange is None or key not in self._sizes:
            return
        if written.exception() is None:
            exchange.stored(key)
        else:
            exchange.not_stored(key)
            self._release(key)

    def _release(self, key: str) -> bool:
        size = self._sizes.pop(key, None)
        self._bytes -= size or 0
        return size is not None


class StoredMessages:
    """One instance per worker.

    Args:
        limits: of each peer.
        table: who listens to what.
        writer: of the worker.
        seal, unseal: a message for the database, and back.
        raise_alarm: of the node.
        vouch: for a response to somebody of another worker.
    """

    def __init__(
        self,
        limits: StoreLimits,
        table: RoutingTable,
        writer: Writer,
        seal: Seal,
        unseal: Seal,
        raise_alarm: Callable[[str, str, str], None],
        vouch: Callable[[Response], None],
    ) -> None:
        self.limits = limits
        self.seal = seal
        self._table = table
        self._writer = writer
        self._unseal = unseal
        self._raise_alarm = raise_alarm
        self._vouch = vouch
        self._forgets_at = 0.0

    async def open(self, peer: int, domain: str) -> PeerStore:
        """What is stored for a peer that this worker serves from now on. Raises NodeError."""
        found: list[Stored] = []

        def look() -> None:
            found[:] = stored_rows.read(peer, self._unseal)

        await self._writer.submit(Call(look))
        return PeerStore(self, peer, domain, found)

    def follow(self) -> None:
        """See, now and then, that what was set aside long ago goes."""
        now = time.monotonic()
        if now >= self._forgets_at:
            self._forgets_at = now + _FORGETS_EVERY
            self.write(stored_rows.forget_old)

    def write(self, change: Callable[[], None]) -> asyncio.Future[Any]:
        """Have the worker's writer do it, in the order of the calls."""
        written = self._writer.submit(Call(change))
        written.add_done_callback(retrieve_error)
        return written

    def tell(self, domain: str, reason: str) -> None:
        """A message was set aside."""
        text = f"A stored message for {domain} was not delivered: {reason}"
        self._raise_alarm(SET_ASIDE_ALARM, domain, text)

    def ask_again(self, message: Message) -> None:
        """Have its sender be one who has asked the peer just now, at whichever worker he is.

        What a session has asked is forgotten after some minutes, and with the worker.
        """
        table = self._table
        asker = table.owner_of(message.sender) or table.at_runtime(message.sender)
        peer = table.peer_of(message.recipients[0])
        if peer is None:
            return
        if asker is None or not asker.is_here:
            self._vouch(Response(message.sender, message.id_key, peer.id))
        else:
            requester = cast(Requester, asker)  # as every session of this worker is
            requester.ask(message.sender, message.id, peer.id, perf_counter())
