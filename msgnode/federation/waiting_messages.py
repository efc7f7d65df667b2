"""Shows operators what waits for the peers of this worker, and does what they order about it.

Rules
- A message that has waited SHOWN_AFTER seconds gets a row, the first MOST of a peer. The row goes
  when the message has left. So does a request that has left and has had no response for as long,
  until it has, or none is waited for. Rows tell, nothing more: what waits is in memory.
- An order names a queue and numbers in it. It holds for those that are still there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
from django.utils import timezone

from msgnode.core.errors import NodeError
from msgnode.core.messages import Message
from msgnode.core.redaction import cut
from msgnode.models import ADDRESS_LENGTH, PeerMessage
from msgnode.storage.control import Handler

from . import waiting_rows
from .peer_exchange import ASKED_SECONDS
from .peer_link import PeerLink
from .peer_queue import PeerQueue, Waiting
from .stored_rows import shown_id

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
        return {waiting_rows.RETRY: self._retry, waiting_rows.DISCARD: self._discard}

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
                await self._blocking(partial(waiting_rows.show, pk, queue.id, rows, gone))
                self._rows[pk] = now

    async def forget(self, pk: int) -> None:
        """A peer is served here no more."""
        if self._rows.pop(pk, None) is not None:
            await self._blocking(partial(waiting_rows.forget, pk))

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
