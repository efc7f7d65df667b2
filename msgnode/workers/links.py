"""The links of a worker to the others: numbered batches; a missing one is requested again.

Rules
- What is sent in one turn of the event loop leaves together, as one batch per peer.
- With every heartbeat a peer is told how far its link has come, until it has acknowledged all, so
  that the loss of the last batch is noticed too. An idle link costs nothing.
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
from .peer import Peer
from .protocol import (
    BarrierAck,
    BarrierRequest,
    LostFrames,
    PeerMessage,
    Ready,
    SnapshotBegins,
    SnapshotEnds,
)

log = logging.getLogger(__name__)

_ASK_AGAIN = 0.05  # seconds between two requests for the same lost batch
_READER_PATIENCE = 5.0  # seconds that a full link may hold senders back
_ACKNOWLEDGED_PART = 64  # of a link's bytes: so much may come before it is acknowledged

Snapshot = Callable[[Peer], Iterator[PeerMessage]]


class Links:
    """One instance per worker.

    Args:
        inbox: sends the batches.
        epoch: this worker's epoch.
        timeout: seconds that publishing a batch may take.
        link_bytes: most bytes that may wait for one peer.
        snapshot: yields what a peer must know at the beginning of a stream, each message as of when
            it is taken.
        raise_alarm: takes kind, subject and text.

    Attributes:
        heard: the handlers of messages from peers, by type.
        on_down: called with a peer that is no longer heard of; its sessions may return with it.
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
        self.heard: dict[type[PeerMessage], Callable[[Peer, Any], None]] = {}
        self.on_down: list[Callable[[Peer], None]] = []
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

    def open(self, peer: Peer) -> None:
        """Open the link to a peer; a snapshot of all it must know comes first."""
        peer.is_up = True
        peer.tasks = [asyncio.create_task(self._publish(peer))]
        self._begin(peer)

    def close(self, peer: Peer) -> None:
        """Close the link to a peer: what it has not acknowledged is lost, and others are told."""
        peer.is_up = peer.is_ready = False
        peer.end()
        peer.lost |= peer.out.begin()
        for each in self.on_down:
            each(peer)

    async def flush(self, peer: Peer) -> None:
        """Publish what still waits for a peer whose tasks have ended."""
        while (batch := peer.out.take()) is not None:
            await self._send(peer, number=batch.number, words=batch.words)

    def look_after(self, peer: Peer) -> None:
        """Report losses, and release senders that were paused for too long."""
        if peer.lost:
            peer.given_up += len(peer.lost)
            peer.out.put(LostFrames(list(peer.lost)))
            peer.lost.clear()
        now = monotonic()
        if not peer.out.is_behind:
            peer.full_since = now
        elif now - peer.full_since > _READER_PATIENCE:
            peer.out.resume()

    def say_how_far(self, peer: Peer) -> None:
        """Tell a peer what it should have received, or what has come from it."""
        if peer.out.bytes:  # the same way as the batches, so as not to overtake them
            self._answer(peer, published=[peer.out.stream, peer.out.published])
        elif peer.unacknowledged:
            self._answer(peer)

    def _begin(self, peer: Peer) -> None:
        """Begin a new stream to a peer, with a snapshot."""
        peer.lost |= peer.out.begin()
        peer.settled = peer.asked = 0
        peer.is_synced = peer.has_snapshot = False
        peer.out.put(SnapshotBegins())
        peer.tasks = [each for each in peer.tasks if not each.done()]
        peer.tasks.append(asyncio.create_task(self._snapshot(peer, peer.out.stream)))

    async def _snapshot(self, peer: Peer, stream: int) -> None:
        for message in self._first_said(peer):
            if peer.out.stream != stream:
                return
            peer.out.put(message, len(protocol.encode([message])))
            await peer.room()
        if peer.out.stream != stream:
            return
        peer.out.put(SnapshotEnds())
        peer.is_synced = True
        self.changes += 1  # so that no acknowledgement of an earlier stream is taken for this one's
        peer.asked = peer.snapshot_mark = self.changes
        peer.out.put(BarrierRequest(peer.asked))
        if self.is_ready:
            peer.out.put(Ready())

    # --- what leaves ------------------------------------------------------------------------------

    async def _publish(self, peer: Peer) -> None:
        """Publish what waits for a peer, batch by batch, while it is up."""
        while asyncio.current_task() in peer.tasks:
            await peer.wake.wait()
            peer.wake.clear()
            while (batch := peer.out.take()) is not None:
                stream = peer.out.stream
                try:
                    async with asyncio.timeout(self._timeout):
                        await self._send(peer, number=batch.number, words=batch.words)
                    self._inbox.is_well(LAYER_FULL)
                except Exception as error:  # full or out of reach; redis and layers differ in them
                    log.debug("The channel layer did not take a batch: %s", error)
                    if isinstance(error, Full):
                        self._inbox.note_full(error)
                    await asyncio.sleep(RETRY)
                    if peer.out.stream == stream:
                        peer.out.rewind(batch.number)
                        peer.wake.clear()

    async def _send(self, peer: Peer, **more: Any) -> None:
        peer.unacknowledged = 0
        await self._inbox.send(
            peer.inbox,
            {
                "type": "worker.batch",
                "epoch": self._epoch,
                "stream": peer.out.stream,
                "have": [peer.incoming.stream, peer.incoming.next],
                **more,
            },
        )

    def _answer(self, peer: Peer, **more: Any) -> None:
        """Send a message without a batch: an acknowledgement or a request for missing ones."""
        task = asyncio.create_task(self._answer_soon(peer, more))
        peer.tasks = [each for each in peer.tasks if not each.done()] + [task]

    async def _answer_soon(self, peer: Peer, more: dict[str, Any]) -> None:
        with contextlib.suppress(Exception):  # the next beat says the same
            await self._send(peer, **more)

    # --- what comes -------------------------------------------------------------------------------

    def take(self, peer: Peer, message: dict[str, Any]) -> None:
        """Process a message of a peer: a batch, or how far it is."""
        peer.heard_at = monotonic()
        stream, until = message["have"]
        if stream == peer.out.stream:
            peer.out.acknowledge(until)
        if "again" in message and not self._rewind(peer, *message["again"]):
            self._begin(peer)
        if "published" in message:
            peer.unacknowledged += 1  # our acknowledgement may have been lost
            if peer.incoming.hears_of(*message["published"]):
                self._noticed(peer)
                self.ask_again(peer)
        if "number" in message:
            self._take_batch(peer, message["stream"], message["number"], message["words"])

    def ask_again(self, peer: Peer) -> None:
        """Request what is missing from a peer, unless that was just done."""
        now = monotonic()
        if now - peer.asked_again_at >= _ASK_AGAIN:
            peer.asked_again_at = now
            self._answer(peer, again=[peer.incoming.stream, peer.incoming.next])

    def _rewind(self, peer: Peer, stream: int, number: int) -> bool:
        """Resend from a batch on; False if that needs a new stream. Ignores old streams."""
        return stream < peer.out.stream or (stream == peer.out.stream and peer.out.rewind(number))

    def _take_batch(self, peer: Peer, stream: int, number: int, batch: bytes) -> None:
        incoming = peer.incoming
        gaps = incoming.gaps
        takes = incoming.takes(stream, number)
        if incoming.gaps > gaps:
            self._noticed(peer)
        if not takes:
            if incoming.is_missing:
                self.ask_again(peer)
            return
        for message in protocol.decode(batch):
            match message:
                case BarrierRequest():  # behind what waits for the peer: handover.py needs that
                    peer.out.put(BarrierAck(message.mark))
                case BarrierAck():
                    peer.acknowledge(message.mark)
                case Ready():  # it accepts sessions only after it has processed all before
                    peer.is_ready = True
                    peer.settle(max(peer.settled, self.changes))
                case _:
                    if isinstance(message, SnapshotEnds):
                        peer.known_stream = peer.told_stream = stream
                        self.learned.set()
                    self._pass_on(peer, message)
        peer.unacknowledged += len(batch)
        if peer.unacknowledged >= self.link_bytes // _ACKNOWLEDGED_PART:
            peer.unacknowledged = 0
            self._answer(peer)

    def _pass_on(self, peer: Peer, message: protocol.AnyMessage) -> None:
        with FAULTS.kept_to("worker link"):
            self.heard[type(message)](peer, message)

    def _noticed(self, peer: Peer) -> None:
        text = f"Messages of the worker {peer.name} were lost on the way and are asked for again."
        self._raise_alarm("worker-gap", peer.name, text)
