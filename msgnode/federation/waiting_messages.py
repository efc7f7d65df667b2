"""Shows operators what waits for the peers of this worker, and does what they order about it.

Rules
- A message that has waited SHOWN_AFTER seconds gets a row, the first MOST of a peer. The row goes
  when the message has left. So does a request that has left and has had no response for as long,
  until it has, or none is waited for. Rows tell, nothing more: what waits is in memory.
- An order names a queue and numbers in it. It holds for those that are still there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from msgnode.core.errors import NodeError
from msgnode.core.messages import Message
from msgnode.core.redaction import cut
from msgnode.models import ADDRESS_LENGTH, Peer, PeerMessage
from msgnode.storage.control import Handler, post

from .peer_exchange import ASKED_SECONDS
from .peer_link import PeerLink
from .peer_queue import PeerQueue, Waiting
from .stored_messages import shown_id

RETRY = "peers.retry"
"""The control message that some of a queue get their whole time again, and the peer is tried."""
DISCARD = "peers.discard"
"""The control message that some of a queue, or all, wait no longer."""
_PORTION = 500
SHOWN_AFTER = 1.0
MOST = 500
_LARGEST = 8_000
"""Bytes of a message that is shown whole; of a larger one its head alone."""


class WaitingMessages:
    """One instance per worker.

    Args:
        links: to the peers of this worker, by the key of their rows.
        shown: a body as people may see it.
        blocking: runs what uses the database.
    """

    def __init__(
        self,
        links: Mapping[int, PeerLink],
        shown: Callable[[Any], Any],
        blocking: Callable[[Callable[[], None]], Awaitable[None]],
    ) -> None:
        self._links = links
        self._shown = shown
        self._blocking = blocking
        self._rows: dict[int, dict[int, float]] = {}  # peer -> number -> until

    def handlers(self) -> dict[str, Handler]:
        """Of the control messages."""
        return {RETRY: self._retry, DISCARD: self._discard}

    async def follow(self) -> None:
        """Have the rows be what waits now."""
        for pk, link in list(self._links.items()):
            queue = link.exchange.queue
            waits = queue.longest(SHOWN_AFTER, MOST)
            sent = link.exchange.unanswered(SHOWN_AFTER, MOST)
            now = {n: one.until for n, one in waits.items()} | dict.fromkeys(sent, 0.0)
            before = self._rows.get(pk)
            known = before or {}
            new = [n for n, until in now.items() if known.get(n) != until]
            gone = [n for n in known if n not in now or known[n] != now[n]]
            if before is None or new or gone:
                rows = [
                    self._sent(pk, queue, n, *sent[n])
                    if n in sent
                    else self._row(pk, queue, n, waits[n])
                    for n in new
                ]
                await self._blocking(partial(show, pk, queue.id, rows, gone))
                self._rows[pk] = now

    async def forget(self, pk: int) -> None:
        """A peer is served here no more."""
        if self._rows.pop(pk, None) is not None:
            await self._blocking(partial(forget, pk))

    def _sent(
        self, pk: int, queue: PeerQueue, number: int, one: Waiting, ago: float
    ) -> PeerMessage:
        """The row of a request that has left some seconds ago."""
        row = self._row(pk, queue, number, one)
        row.is_sent, row.since = True, timezone.now() - timedelta(seconds=ago)
        row.until = row.since + timedelta(seconds=ASKED_SECONDS)
        return row

    def _row(self, pk: int, queue: PeerQueue, number: int, one: Waiting) -> PeerMessage:
        message = one.message
        until = timezone.now() + timedelta(seconds=queue.left(one))
        head = {"type": message.type, "from": cut(message.sender), "to": cut(message.recipients[0])}
        return PeerMessage(
            peer_id=pk, queue=queue.id, number=number, kind=one.class_.value,
            message_id=shown_id(message), type=message.type[:32],
            sender=head["from"][:ADDRESS_LENGTH], to=head["to"][:ADDRESS_LENGTH],
            size=len(message.frame),
            since=until - timedelta(seconds=one.until - one.since), until=until,
            text=msgspec.json.encode({**head, "body": self._body(message)}).decode(),
        )  # fmt: skip

    def _body(self, message: Message) -> Any:
        if len(message.frame) > _LARGEST:
            return f"{len(message.frame):,} bytes"
        try:
            return self._shown(message.fields())
        except NodeError as error:
            return error.description

    def _retry(self, payload: dict[str, Any]) -> None:
        """Give messages their whole time again, and try the peer at once."""
        for link in self._named(payload):
            link.exchange.queue.renew(payload["numbers"])
            link.hurry()

    def _discard(self, payload: dict[str, Any]) -> None:
        for link in self._named(payload):
            link.exchange.discard(payload["numbers"])

    def _named(self, payload: dict[str, Any]) -> list[PeerLink]:
        """The link an order is for, if this worker has it."""
        return [
            link
            for link in self._links.values()
            if link.peer.domain == payload["domain"]
            and payload["queue"] in ("", link.exchange.queue.id)
        ]


# --- the rows (block) -----------------------------------------------------------------------------


def show(peer: int, queue: str, new: Collection[PeerMessage], gone: Collection[int]) -> None:
    """What waits in a queue now: these as well, and those no more. Other queues of the peer end."""
    with transaction.atomic():
        PeerMessage.objects.filter(peer=peer).exclude(queue=queue).delete()
        numbers = list(gone)
        for start in range(0, len(numbers), _PORTION):
            some = numbers[start : start + _PORTION]
            PeerMessage.objects.filter(queue=queue, number__in=some).delete()
        PeerMessage.objects.bulk_create(new, batch_size=_PORTION, ignore_conflicts=True)


def forget(peer: int) -> None:
    """Nothing waits for a peer any more."""
    PeerMessage.objects.filter(peer=peer).delete()


def order(kind: str, rows: Iterable[PeerMessage]) -> None:
    """Have the worker retry or discard messages. Takes part in the caller's transaction.

    Args:
        kind: RETRY or DISCARD.
        rows: with their peers. What has left the queue meanwhile is not touched.
    """
    chosen: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        chosen.setdefault((row.peer.domain, row.queue), []).append(row.number)
    for (domain, queue), numbers in chosen.items():
        post(kind, domain=domain, queue=queue, numbers=numbers)
        if kind == DISCARD:
            PeerMessage.objects.filter(queue=queue, number__in=numbers).delete()


def discard_all(peer: Peer) -> None:
    """Have all that waits for a peer be discarded, what no row shows too."""
    with transaction.atomic():
        post(DISCARD, domain=peer.domain, queue="", numbers=None)
        forget(peer.pk)


def waiting() -> QuerySet[PeerMessage]:
    """What a worker has said that waits, and cannot be over yet."""
    return told().filter(is_sent=False)


def told() -> QuerySet[PeerMessage]:
    """That, and what has left, for which there is no response yet."""
    return PeerMessage.objects.filter(until__gt=timezone.now()).select_related("peer")
