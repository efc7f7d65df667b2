"""The links of a worker to the others: numbered batches; a missing one is requested again.

Rules
- What is sent in one turn of the event loop leaves together, as one batch per other worker.
- With every heartbeat another worker is told how far its link has come, until it has acknowledged
  all, so that the loss of the last batch is noticed too. An idle link costs nothing.
- What cannot be recovered is given up: a new stream begins with a snapshot, and the sessions that
  have lost frames are named (`LostFrames`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

from msgnode.core.faults import FAULTS
from msgnode.redis.faults import Full

from . import protocol
from .inbox import LAYER_FULL, RETRY, Inbox
from .linked_worker import LinkedWorker
from .protocol import (
    BarrierAck,
    BarrierRequest,
    LinkMessage,
    LostFrames,
    Ready,
    SnapshotBegins,
    SnapshotEnds,
)

log = logging.getLogger(__name__)

_ASK_AGAIN = 0.05  # seconds between two requests for the same lost batch
_READER_PATIENCE = 5.0  # seconds that a full link may hold senders back
_ACKNOWLEDGED_PART = 64  # of a link's bytes: so much may come before it is acknowledged

Snapshot = Callable[[LinkedWorker], Iterator[LinkMessage]]


class Links:
    """One instance per worker.

    Args:
        inbox: sends the batches.
        epoch: this worker's epoch.
        timeout: seconds that publishing a batch may take.
        link_bytes: most bytes that may wait for one other worker.
        snapshot: yields what another worker must know at the beginning of a stream, each message as
            of when it is taken.
        raise_alarm: takes kind, subject and text.

    Attributes:
        handlers: the handlers of messages from other workers, by type.
        on_down: called with a worker that is no longer heard of; its sessions may return with it.
        changes: rises with each message to others; barriers name it as their mark.
        is_ready: whether this worker accepts sessions.
        learned: set when one more worker is completely known.
    """

    def __init__(
        self,
        inbox: Inbox,
        epoch: str,
        timeout: float,
        link_bytes: int,
        snapshot: Snapshot,
        raise_alarm: Callable[[str, str, str], None],
    ) -> None:
        self.handlers: dict[type[LinkMessage], Callable[[LinkedWorker, Any], None]] = {}
        self.on_down: list[Callable[[LinkedWorker], None]] = []
        self.changes = 0
        self.is_ready = False
        self.learned = asyncio.Event()
        self._inbox = inbox
        self._epoch = epoch
        self._timeout = timeout
        self.link_bytes = link_bytes
        self._first_said = snapshot
        self._raise_alarm = raise_alarm

    # --- the life of a link -----------------------------------------------------------------------

    def open(self, other: LinkedWorker) -> None:
        """Open the link to another worker; a snapshot of all it must know comes first."""
        other.is_up = True
        other.tasks = [asyncio.create_task(self._publish(other))]
        self._begin(other)

    def close(self, other: LinkedWorker) -> None:
        """Close the link to a worker: what it has not acknowledged is lost, and others are told."""
        other.is_up = other.is_ready = False
        other.end()
        other.lost |= other.out.begin()
        for each in self.on_down:
            each(other)

    async def flush(self, other: LinkedWorker) -> None:
        """Publish what still waits for another worker whose tasks have ended."""
        while (batch := other.out.take()) is not None:
            await self._send(other, number=batch.number, words=batch.words)

    def look_after(self, other: LinkedWorker) -> None:
        """Report losses, and release senders that were paused for too long."""
        if other.lost:
            other.given_up += len(other.lost)
            other.out.put(LostFrames(list(other.lost)))
            other.lost.clear()
        now = monotonic()
        if not other.out.is_behind:
            other.full_since = now
        elif now - other.full_since > _READER_PATIENCE:
            other.out.resume()

    def say_how_far(self, other: LinkedWorker) -> None:
        """Tell another worker what it should have received, or what has come from it."""
        if other.out.bytes:  # the same way as the batches, so as not to overtake them
            self._answer(other, published=[other.out.stream, other.out.published])
        elif other.unacknowledged:
            self._answer(other)

    def _begin(self, other: LinkedWorker) -> None:
        """Begin a new stream to another worker, with a snapshot."""
        other.lost |= other.out.begin()
        other.settled = other.asked = 0
        other.is_synced = other.has_snapshot = False
        other.out.put(SnapshotBegins())
        other.tasks = [each for each in other.tasks if not each.done()]
        other.tasks.append(asyncio.create_task(self._snapshot(other, other.out.stream)))

    async def _snapshot(self, other: LinkedWorker, stream: int) -> None:
        for message in self._first_said(other):
            if other.out.stream != stream:
                return
            other.out.put(message, len(protocol.encode([message])))
            await other.room()
        if other.out.stream != stream:
            return
        other.out.put(SnapshotEnds())
        other.is_synced = True
        self.changes += 1  # so that no acknowledgement of an earlier stream is taken for this one's
        other.asked = other.snapshot_mark = self.changes
        other.out.put(BarrierRequest(other.asked))
        if self.is_ready:
            other.out.put(Ready())

    # --- what leaves ------------------------------------------------------------------------------

    async def _publish(self, other: LinkedWorker) -> None:
        """Publish what waits for another worker, batch by batch, while it is up."""
        while asyncio.current_task() in other.tasks:
            await other.wake.wait()
            other.wake.clear()
            while (batch := other.out.take()) is not None:
                stream = other.out.stream
                try:
                    async with asyncio.timeout(self._timeout):
                        await self._send(other, number=batch.number, words=batch.words)
                    self._inbox.is_well(LAYER_FULL)
                except Exception as error:  # full or out of reach; redis and layers differ in them
                    log.debug("The channel layer did not take a batch: %s", error)
                    if isinstance(error, Full):
                        self._inbox.note_full(error)
                    await asyncio.sleep(RETRY)
                    if other.out.stream == stream:
                        other.out.rewind(batch.number)
                        other.wake.clear()

    async def _send(self, other: LinkedWorker, **more: Any) -> None:
        other.unacknowledged = 0
        await self._inbox.send(
            other.inbox,
            {
                "type": "worker.batch",
                "epoch": self._epoch,
                "stream": other.out.stream,
                "have": [other.incoming.stream, other.incoming.next],
                **more,
            },
        )

    def _answer(self, other: LinkedWorker, **more: Any) -> None:
        """Send a message without a batch: an acknowledgement or a request for missing ones."""
        task = asyncio.create_task(self._answer_soon(other, more))
        other.tasks = [each for each in other.tasks if not each.done()] + [task]

    async def _answer_soon(self, other: LinkedWorker, more: dict[str, Any]) -> None:
        with contextlib.suppress(Exception):  # the next beat says the same
            await self._send(other, **more)

    # --- what comes -------------------------------------------------------------------------------

    def take(self, other: LinkedWorker, message: dict[str, Any]) -> None:
        """Process a message of another worker: a batch, or how far it is."""
        other.heard_at = monotonic()
        stream, until = message["have"]
        if stream == other.out.stream:
            other.out.acknowledge(until)
        if "again" in message and not self._rewind(other, *message["again"]):
            self._begin(other)
        if "published" in message:
            other.unacknowledged += 1  # our acknowledgement may have been lost
            if other.incoming.hears_of(*message["published"]):
                self._noticed(other)
                self.ask_again(other)
        if "number" in message:
            self._take_batch(other, message["stream"], message["number"], message["words"])

    def ask_again(self, other: LinkedWorker) -> None:
        """Request what is missing from another worker, unless that was just done."""
        now = monotonic()
        if now - other.asked_again_at >= _ASK_AGAIN:
            other.asked_again_at = now
            self._answer(other, again=[other.incoming.stream, other.incoming.next])

    def _rewind(self, other: LinkedWorker, stream: int, number: int) -> bool:
        """Resend from a batch on; False if that needs a new stream. Ignores old streams."""
        return stream < other.out.stream or (
            stream == other.out.stream and other.out.rewind(number)
        )

    def _take_batch(self, other: LinkedWorker, stream: int, number: int, batch: bytes) -> None:
        incoming = other.incoming
        gaps = incoming.gaps
        takes = incoming.takes(stream, number)
        if incoming.gaps > gaps:
            self._noticed(other)
        if not takes:
            if incoming.is_missing:
                self.ask_again(other)
            return
        for message in protocol.decode(batch):
            match message:
                case BarrierRequest():  # behind what waits for that worker: handover.py needs that
                    other.out.put(BarrierAck(message.mark))
                case BarrierAck():
                    other.acknowledge(message.mark)
                case Ready():  # it accepts sessions only after it has processed all before
                    other.is_ready = True
                    other.settle(max(other.settled, self.changes))
                case _:
                    if isinstance(message, SnapshotEnds):
                        other.known_stream = other.told_stream = stream
                        self.learned.set()
                    self._pass_on(other, message)
        other.unacknowledged += len(batch)
        if other.unacknowledged >= self.link_bytes // _ACKNOWLEDGED_PART:
            other.unacknowledged = 0
            self._answer(other)

    def _pass_on(self, other: LinkedWorker, message: protocol.AnyMessage) -> None:
        with FAULTS.kept_to("worker link"):
            self.handlers[type(message)](other, message)

    def _noticed(self, other: LinkedWorker) -> None:
        text = f"Messages of the worker {other.name} were lost on the way and are asked for again."
        self._raise_alarm("worker-gap", other.name, text)
