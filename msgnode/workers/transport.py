"""The transport between the workers of a node: membership, messages, and acknowledgements.

Rules
- A worker subscribes to its inbox before it announces itself. Its heartbeat in the workers' group
  tells all others that it lives, several times in `timeout` seconds. Of its links the heartbeat
  names only those that are down, and those whose snapshot (links.py) is not acknowledged yet. To
  a worker of an earlier version, which takes a link that is not named for down, all are named.
- A peer without a heartbeat for `timeout` seconds, or that does not acknowledge in that time, is
  down: nobody waits for it, frames for it are dropped and noted as lost. When it is heard of again
  a new stream begins with a snapshot (links.py).
- A worker with another protocol version is not a peer; an alarm names it, once. A new worker waits
  until the last of them has ended.
- `barrier` completes when every peer that accepts sessions has processed what was sent to all
  before; `heard` when those have that were told something the others were not. What these peers had
  sent here before they knew has then come as well, because their answer comes behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict
from time import monotonic
from typing import Any

from msgnode.bus.ports import Alarms
from msgnode.core.faults import FAULTS

from .inbox import LAYER_AWAY, RETRY, Inbox
from .links import Links, Snapshot
from .peer import DOWN, Peer, acknowledged_by
from .protocol import PROTOCOL, PeerMessage, Ready
from .worker_process import WorkerId

log = logging.getLogger(__name__)

_EPOCHS_KEPT = 10_000
_LATE = 0.75
"""The part of `timeout` without a sign of life after which something said may be missing here: less
than what the other side waits before it goes on without this worker."""


class PeerTransport:
    """One instance per worker.

    `layer` is a channel layer, `secret` is shared by the workers of this node; `snapshot` is what a
    peer is told first, and `may_serve` says whether received messages may be processed.

    Attributes:
        peers: the other workers that are heard of, by epoch.
        refused: epochs with another protocol version.
        takes: whether other workers may hand sessions over to this one.
        hears_all: whether all that the others say of their sessions comes; else one may have told
            its runtime that it listens, while this worker does not know it.
        heard_by: the handlers of messages from other workers, by type.
        on_down: called with a peer that is no longer heard of; its sessions may return with it.
        missed: the sessions that miss frames, of workers that have ended; they are yet to be told.
    """

    def __init__(
        self,
        layer: Any,
        me: WorkerId,
        secret: str,
        timeout: float,
        link_bytes: int,
        snapshot: Snapshot,
        alarms: Alarms,
        may_serve: Callable[[], bool] = lambda: True,
    ) -> None:
        self.me = me
        self.timeout = timeout
        self.peers: dict[str, Peer] = {}
        self.takes = self.hears_all = True
        self.protocol = PROTOCOL
        self.refused: dict[str, None] = {}
        self.missed: set[str] = set()
        self.inbox = Inbox(layer, me.name, secret, alarms.raise_alarm, alarms.clear_alarm)
        self.links = Links(self.inbox, me.epoch, timeout, link_bytes, snapshot, alarms.raise_alarm)
        self.heard_by = self.links.heard
        self.on_down = self.links.on_down
        self.node = self.inbox.node
        self._may_serve = may_serve
        self._raise_alarm = alarms.raise_alarm
        self._asked_all: tuple[int, asyncio.Future[None] | None] = (-1, None)
        self._tasks: list[asyncio.Task[None]] = []
        self._heard_itself_at = monotonic()
        self._gone: dict[str, None] = {}
        self._strays: set[str] = set()  # of these, who was heard since the last beat

    # --- start and stop ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the inbox and announce this worker. Raises if the layer is unreachable."""
        await self.inbox.open()
        await self._heartbeat()
        self._tasks = [asyncio.create_task(job) for job in (self._receive(), self._keep())]

    async def join(self, expected: set[str]) -> None:
        """Wait until these epochs are met, and until all know that this worker accepts sessions.

        Workers that turn out to have ended are removed from `expected` meanwhile.
        """
        said = monotonic()
        while True:
            known = {peer.epoch for peer in self.peers.values() if peer.is_known}
            if expected <= known and all(peer.is_known for peer in self._up()):
                break
            if monotonic() - said > self.timeout:
                said = monotonic()
                late = sorted(expected - known)
                log.warning("What other workers have is not known yet.", extra={"workers": late})
            self.links.learned.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.timeout / 10):
                    await self.links.learned.wait()
        self.links.is_ready = True
        self.tell(Ready())
        for peer in self._up():
            peer.is_ready = True  # they may not take sessions yet, but have to have heard it
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.timeout):
                if (settled := self.barrier()) is not None:
                    await settled
                await self._heartbeat_now()  # one that stops gives its sessions to who takes some

    async def stop(self) -> set[str]:
        """Publish what was sent, then leave.

        Returns:
            The sessions of other workers that miss frames.
        """
        await self._end_tasks()
        unsent = set(self._up())
        with contextlib.suppress(Exception):
            async with asyncio.timeout(self.timeout):
                for peer in self._up():
                    await self.links.flush(peer)
                    unsent.discard(peer)
        await self.inbox.close(self.timeout)
        lost = (peer.lost for peer in self.peers.values())
        return self.missed.union(*lost, *(peer.out.begin() for peer in unsent))

    async def silence(self) -> set[str]:
        """Stop receiving and sending.

        Returns:
            The sessions of other workers for which frames were still unacknowledged.
        """
        missed = (peer.lost | peer.out.begin() for peer in self.peers.values())
        self.missed.update(*missed)
        await self._end_tasks()
        await self.inbox.close(RETRY)
        return self.missed

    def close(self) -> None:
        """Accept no more sessions, and tell the others."""
        self.takes = False
        self._tasks.append(asyncio.create_task(self._heartbeat_now()))

    async def _end_tasks(self) -> None:
        """Cancel tasks until they have ended: one that waits for Redis may miss the first time."""
        tasks = [*self._tasks, *(task for peer in self.peers.values() for task in peer.tasks)]
        left = {task for task in tasks if not task.done()}
        for _ in range(10):
            if not left:
                return
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=0.2)

    # --- saying -----------------------------------------------------------------------------------

    def tell(self, message: PeerMessage, size: int = 0) -> None:
        """Send a message to every peer."""
        self.links.changes += 1
        for peer in self.peers.values():
            if peer.is_up:
                peer.out.put(message, size)

    def tell_some(self, epochs: Iterable[str], message: PeerMessage, size: int = 0) -> None:
        """Send a message to those of these workers that are heard of."""
        self.links.changes += 1
        for epoch in epochs:
            peer = self.peers.get(epoch)
            if peer is not None and peer.is_up:
                peer.told = self.links.changes
                peer.out.put(message, size)

    def barrier(self) -> asyncio.Future[None] | None:
        """A future for when every peer that accepts sessions has processed all messages so far."""
        mark = self.links.changes
        asked_at, asked = self._asked_all
        if mark == asked_at and asked is not None and not asked.done():
            return asked
        late = [(peer, mark) for peer in self._up() if peer.is_ready and peer.settled < mark]
        future = acknowledged_by(late)
        if future is not None:
            self._asked_all = mark, future
        return future

    def heard(self) -> asyncio.Future[None] | None:
        """A future for when the peers that `tell_some` has told something have processed it."""
        up = self._up()
        return acknowledged_by(
            [(peer, peer.told) for peer in up if peer.is_ready and peer.settled < peer.told]
        )

    def done_by(self, epoch: str) -> asyncio.Future[None] | None:
        """A future for when a peer has processed all messages so far, or is down."""
        peer = self.peers.get(epoch)
        if peer is None or not peer.is_up:
            return None
        self.links.changes += 1
        return acknowledged_by([(peer, self.links.changes)])

    # --- who is there -----------------------------------------------------------------------------

    @property
    def number_ready(self) -> int:
        """The number of other workers that accept sessions."""
        return sum(peer.is_up and peer.is_ready for peer in self.peers.values())

    @property
    def hears_itself(self) -> bool:
        """Whether this worker receives its own messages to all: the layer works."""
        return monotonic() - self._heard_itself_at < self.timeout

    def knows(self, epochs: set[str]) -> bool:
        """Whether the state of these workers, and of those heard of, is completely known here.

        Not while this worker is cut off, which it may notice before it misses the others.
        """
        if not self.hears_itself:
            return False
        all_known = all(peer.is_up and peer.is_known for peer in self.peers.values())
        return all_known and epochs <= self.peers.keys()

    def figures(self) -> list[dict[str, Any]]:
        """The current figures of the links, for the operator."""
        return [peer.figures() for peer in tuple(self.peers.values())]  # asked from threads, too

    def down(self, peer: Peer, why: str) -> None:
        """Take a peer for down: what it has not acknowledged is lost, and it will be told."""
        if not peer.is_up:
            return
        self.links.close(peer)
        self.hears_all = False
        log.warning("A worker %s.", why, extra={"worker": peer.name})
        self._raise_alarm("worker-down", peer.name, f"The worker {peer.name} {why}.")

    def forget(self, peer: Peer) -> None:
        """Forget a peer that has ended."""
        self.peers.pop(peer.epoch, None)
        _remember(self._gone, peer.epoch)
        self.links.close(peer)
        self.missed |= peer.lost

    def _up(self) -> list[Peer]:
        return [peer for peer in self.peers.values() if peer.is_up]

    # --- signs of life ----------------------------------------------------------------------------

    async def _heartbeat(self) -> None:
        for peer in self._up():
            self.links.say_how_far(peer)
        is_ready = self.links.is_ready
        said = {peer.epoch: peer.beat_stream for peer in self.peers.values()}
        said.update(dict.fromkeys(self._strays, DOWN))
        self._strays.clear()
        await self.inbox.send_to_all(
            {
                "type": "worker.beat",
                "protocol": self.protocol,
                "inbox": self.inbox.name,
                "is_ready": is_ready,
                "takes": is_ready and self.takes,
                "is_brief": True,
                "links": {epoch: each for epoch, each in said.items() if each is not None},
                **asdict(self.me),
            }
        )

    async def _heartbeat_now(self) -> None:
        with contextlib.suppress(Exception):  # the next one comes soon
            await self._heartbeat()

    async def _keep(self) -> None:
        """Send heartbeats, and check the peers."""
        while True:
            await asyncio.sleep(min(1.0, self.timeout / 10))
            try:
                async with asyncio.timeout(self.timeout):
                    await self._heartbeat()
                self.inbox.is_well(LAYER_AWAY)
            except Exception as error:
                log.debug("The channel layer did not take a heartbeat: %s", error)
                self.inbox.note_away(error)
            try:
                self._look_after()
            except Exception:
                log.exception("The links of the worker could not be looked after.")

    def _look_after(self) -> None:
        now = monotonic()
        for peer in self._up():
            with FAULTS.kept_to("worker link"):
                if now - peer.heard_at > self.timeout:
                    self.down(peer, "sent no heartbeat in time")
                elif peer.waiting and now - peer.waiting[0][1] > self.timeout:
                    self.down(peer, "did not acknowledge a change in time")
                else:
                    self.links.look_after(peer)
        self._check_hearing()

    def _check_hearing(self) -> None:
        oldest = monotonic() - self.timeout * _LATE
        self.hears_all = self._heard_itself_at > oldest and all(
            peer.is_up and peer.is_known and peer.heard_at > oldest for peer in self.peers.values()
        )

    async def _receive(self) -> None:
        while True:
            message = await self.inbox.receive()
            if not self._may_serve():
                continue  # it is asked for again, or was given up long ago
            with FAULTS.kept_to("worker link"):
                self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        epoch = message["epoch"]
        if epoch == self.me.epoch:
            self._heard_itself_at = monotonic()
        elif epoch in self._gone:
            self._strays.add(epoch)  # it may not know yet
        elif message["type"] == "worker.beat":
            if message.get("protocol") == self.protocol:
                self._on_heartbeat(message)
            elif epoch not in self.refused:
                self._refuse(message)
        else:
            peer = self.peers.get(epoch)
            if peer is not None and peer.is_up:  # its beat comes first; what is lost is asked for
                self.links.take(peer, message)
                if not self.hears_all:
                    self._check_hearing()

    def _on_heartbeat(self, beat: dict[str, Any]) -> None:
        peer = self.peers.get(beat["epoch"])
        if peer is None:
            peer = self.peers[beat["epoch"]] = Peer(beat, self.links.link_bytes)
            log.info("A worker is there.", extra={"worker": peer.name})
        peer.hear_beat(beat, self.me.epoch)
        self.hears_all = self.hears_all and peer.is_known
        if not peer.is_up:
            self.links.open(peer)
            peer.is_ready = beat["is_ready"]
            peer.tasks.append(asyncio.create_task(self._heartbeat_now()))
        if peer.incoming.is_missing:
            self.links.ask_again(peer)

    def _refuse(self, beat: dict[str, Any]) -> None:
        """Refuse a worker with another protocol version."""
        _remember(self.refused, beat["epoch"])
        text = (
            f"The worker {beat['name']} speaks the protocol {beat.get('protocol', 1)}, this one "
            f"{self.protocol}: they do not meet. Stop the workers of the older version."
        )
        log.error(text)
        self._raise_alarm("worker-protocol", beat["name"], text)


def _remember(epochs: dict[str, None], epoch: str) -> None:
    epochs[epoch] = None
    if len(epochs) > _EPOCHS_KEPT:
        epochs.pop(next(iter(epochs)))
