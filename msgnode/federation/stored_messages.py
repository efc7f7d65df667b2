"""Stores requests with `store: true` in their body until they reach a peer.

Rules
- The row is written while the message waits, or is being sent: nothing waits for the database. The
  sender of one that still waits then is told 100; if it cannot be written, 503.
- The row is deleted with the response. Until then the worker that serves the peer starts with it,
  and sends it again when a socket was lost: a peer may get it twice, with the same id.
- The number and the bytes of stored messages per peer are limited; further ones are refused 503.
- One that has expired, was not answered in time, or is set aside for another reason, is kept for a
  person to look at, and an alarm says so.
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
from typing import Any, NamedTuple, cast

from django.utils import timezone

from msgnode.bus.ports import Requester, Response
from msgnode.bus.table import RoutingTable
from msgnode.bus.writing import Call, Writer, retrieve_error
from msgnode.core import messages
from msgnode.core.messages import Message
from msgnode.core.redaction import cut, cut_id
from msgnode.models import ADDRESS_LENGTH, StoredMessage
from msgnode.models.federation import MESSAGE_ID

from .exchange import PeerExchange
from .queue import Waiting

SET_ASIDE_ALARM = "message-set-aside"
SET_ASIDE_DAYS = 7
"""Days for which an undeliverable message is kept."""
SET_ASIDE_AT_MOST = 1_000
"""Most such messages of one peer; the oldest are deleted first."""

Seal = Callable[[str], str]
MAX_BYTES = 4 * 1024 * 1024
"""Of the stored requests of one peer, beside their number: a single one may have a megabyte."""
_FORGETS_EVERY = 3600.0


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """The limits of stored messages for one peer."""

    messages: int
    bytes: int = MAX_BYTES
    seconds: float = 24 * 3600.0


class PeerStore:
    """The exchange's Store for one peer. Made by StoredMessages."""

    def __init__(self, owner: StoredMessages, peer: int, domain: str, found: list[Stored]) -> None:
        self._owner = owner
        self._peer = peer
        self._domain = domain
        self._found = found
        self._sizes = {each.key: len(each.frame) for each in found}
        self._bytes = sum(self._sizes.values())
        self._exchange: PeerExchange | None = None

    def begin(self, exchange: PeerExchange) -> None:
        """Put the stored messages into an exchange's queue."""
        self._exchange = exchange
        found, self._found = self._found, []
        for each in found:
            exchange.queue.put_back(messages.parse(each.frame), each.key, each.age, each.left)

    def keep(self, message: Message) -> str:
        """Store a message; return its key, "" if there is no room."""
        limits, size = self._owner.limits, len(message.frame)
        if len(self._sizes) >= limits.messages or self._bytes + size > limits.bytes:
            return ""
        key = uuid.uuid4().hex
        self._sizes[key], self._bytes = size, self._bytes + size
        row = StoredMessage(
            peer_id=self._peer, key=key, message_id=shown_id(message),
            type=message.type[:32], sender=message.sender, to=message.recipients[0], size=size,
            until=timezone.now() + timedelta(seconds=limits.seconds),
        )  # fmt: skip
        written = self._owner.write(partial(_add_row, row, message.frame, self._owner.seal))
        written.add_done_callback(partial(self._written, key))
        return key

    def done(self, key: str) -> None:
        """Delete the row of a message that the peer has."""
        if self._release(key):
            self._owner.write(partial(_remove_row, key))

    def set_aside(self, one: Waiting, reason: str) -> None:
        """Keep the row of a message that was given up, with the reason, and raise an alarm."""
        if self._release(one.key):
            self._owner.write(partial(_set_row_aside, one.key, reason))
            self._owner.tell(self._domain, reason)

    def answering(self, message: Message) -> None:
        """Have the sender's open request renewed, because it may be old."""
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
        limits: the limits of each peer.
        table: the routing table.
        writer: the worker's writer.
        seal, unseal: encrypt a message for the database, and decrypt it.
        raise_alarm: raises an alarm of the node.
        vouch: vouches for a response to a session of another worker.
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
        """Open the stored messages of a peer that this worker serves. Raises NodeError."""
        found: list[Stored] = []

        def look() -> None:
            found[:] = _stored_rows(peer, self._unseal)

        await self._writer.submit(Call(look))
        return PeerStore(self, peer, domain, found)

    def follow(self) -> None:
        """Delete old messages that were set aside; call it regularly."""
        now = time.monotonic()
        if now >= self._forgets_at:
            self._forgets_at = now + _FORGETS_EVERY
            self.write(forget_old)

    def write(self, change: Callable[[], None]) -> asyncio.Future[Any]:
        """Have the worker's writer make a change, in the order of the calls."""
        written = self._writer.submit(Call(change))
        written.add_done_callback(retrieve_error)
        return written

    def tell(self, domain: str, reason: str) -> None:
        """Raise the alarm for a message that was set aside."""
        text = f"A stored message for {domain} was not delivered: {reason}"
        self._raise_alarm(SET_ASIDE_ALARM, domain, text)

    def ask_again(self, message: Message) -> None:
        """Renew its sender's open request to the peer, at any worker.

        A session forgets its requests after some minutes, and with its worker.
        """
        table = self._table
        asker = table.owner_of(message.sender) or table.at_runtime(message.sender)
        peer = table.peer_of(message.recipients[0])
        if peer is None:
            return
        if asker is None or not asker.is_here:
            self._vouch(Response(message.sender, message.id_key, peer.id))
        else:
            requester = cast(Requester, asker)  # every session of this worker is one
            requester.ask(message.sender, message.id, peer.id, perf_counter())


# --- the rows (block) -----------------------------------------------------------------------------


class Stored(NamedTuple):
    """A stored message, its age, and the seconds until it expires."""

    key: str
    frame: bytes
    age: float
    left: float


def shown_id(message: Message) -> str:
    """A message's id as written, for operators' searches."""
    return cut_id(message.id.decode(errors="replace"))[:MESSAGE_ID]


def _stored_rows(peer: int, unseal: Seal) -> list[Stored]:
    """The stored messages for a peer, in order. Those that cannot be decrypted are set aside."""
    now, found = timezone.now(), []
    for row in StoredMessage.objects.filter(peer=peer, set_aside_at=None).order_by("id"):
        frame = unseal(row.sealed).encode()
        if not frame:
            _set_row_aside(row.key, "It was sealed with a key that this node has no more.")
            continue
        age, left = (now - row.since).total_seconds(), (row.until - now).total_seconds()
        found.append(Stored(row.key, frame, age, left))
    return found


def _add_row(row: StoredMessage, frame: bytes, seal: Seal) -> None:
    """Store a message."""
    row.sender, row.to = cut(row.sender)[:ADDRESS_LENGTH], cut(row.to)[:ADDRESS_LENGTH]
    row.sealed = seal(frame.decode())
    row.save(force_insert=True)


def _remove_row(key: str) -> None:
    """Remove a stored message."""
    StoredMessage.objects.filter(key=key).delete()


def _set_row_aside(key: str, reason: str) -> None:
    """Set a message aside: it is not tried again."""
    rows = StoredMessage.objects.filter(key=key)
    rows.update(set_aside_at=timezone.now(), reason=reason[:300])
    peer = rows.values_list("peer", flat=True).first()
    aside = StoredMessage.objects.filter(peer=peer).exclude(set_aside_at=None).order_by("-id")
    beyond = list(aside.values_list("pk", flat=True)[SET_ASIDE_AT_MOST : SET_ASIDE_AT_MOST + 500])
    StoredMessage.objects.filter(pk__in=beyond).delete()


def forget_old() -> None:
    """Remove what was set aside long ago."""
    before = timezone.now() - timedelta(days=SET_ASIDE_DAYS)
    StoredMessage.objects.filter(set_aside_at__lt=before).delete()
