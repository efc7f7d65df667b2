"""Where the workers of a node meet: each has one inbox on the channel layer, and a link to each
other (link.py). Knows nothing of what they say.

Rules
- A worker subscribes its inbox before it says that it is there. A beat in the workers' group says
  it to all, several times in `patience` seconds. As often a peer is told over its link how far that
  has come, until it has acknowledged all, so that a lost last batch is noticed as well. A link on
  which nothing is said costs nothing.
- What is said in one turn of the event loop leaves together, as one batch for each peer.
- A peer without a beat for `patience` seconds, or that does not settle in that time, is down:
  nobody waits for it, frames for it are dropped and remembered as lost. When it is heard of again
  a new stream begins with a snapshot.
- A worker that speaks another protocol is not a peer, but is named by an alarm, once. One that
  comes waits until the last of them has ended.
- `barrier` is done when every peer that takes sessions has done what was said to all before it;
  `heard` when those have that were told what the others were not.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import Any, Protocol

from channels.layers import get_channel_layer

from msgnode.core.faults import FAULTS
from msgnode.redis.faults import Full

from . import protocol
from .peer import Acknowledgement, Peer
from .protocol import (
    PROTOCOL,
    BarrierAck,
    BarrierRequest,
    LostFrames,
    PeerMessage,
    Ready,
    SnapshotBegins,
    SnapshotEnds,
)
from .worker_process import WorkerId

log = logging.getLogger(__name__)

LAYER_AWAY = "redis-away"
LAYER_FULL = "redis-full"
_ASK_AGAIN = 0.05  # seconds between two requests for the same lost batch
_RETRY = 0.1  # seconds until a layer that refused is tried again
_READER_PATIENCE = 5.0  # seconds that a full link may hold senders back
_EPOCHS_KEPT = 10_000
_ACKNOWLEDGED_PART = 64  # of a link's bytes: so much may come before it is acknowledged


class TransportClient(Protocol):
    """What the transport needs of those who speak over it."""

    def snapshot(self, peer: Peer) -> Iterator[PeerMessage]:
        """What a peer must know at the begin of a stream; each word is true when it is taken."""
        ...

    def heard(self, peer: Peer, message: protocol.AnyMessage) -> None: ...

    def peer_down(self, peer: Peer) -> None:
        """It is not heard of; its sessions may come back with it."""
        ...


def _remember(epochs: dict[str, None], epoch: str) -> None:
    epochs[epoch] = None
    if len(epochs) > _EPOCHS_KEPT:
        epochs.pop(next(iter(epochs)))


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel tasks until they are done: one that waits for Redis may miss it the first time."""
    left = {task for task in tasks if not task.done()}
    for _ in range(10):
        if not left:
            return
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=0.2)


def channel_layer() -> Any:
    """The layer of the settings."""
    return get_channel_layer()


class PeerTransport:
    """One instance per worker.

    `layer` is a channel layer, `secret` what only workers of this node know."""

    def __init__(
        self,
        layer: Any,
        me: WorkerId,
        secret: str,
        timeout: float,
        link_bytes: int,
        raise_alarm: Callable[[str, str, str], None],
        clear_alarm: Callable[[str, str], None],
    ) -> None:
        self.me = me
        self.timeout = timeout
        self.peers: dict[str, Peer] = {}
        self.takes = True
        self.protocol = PROTOCOL
        self.refused: dict[str, None] = {}  # epochs that speak another protocol
        self.may_serve: Callable[[], bool] = lambda: True
        self.client: TransportClient
        self._layer = layer
        self.node = hashlib.sha256(secret.encode()).hexdigest()[:32]
        self._group = f"node-{self.node}"
        self._link_bytes = link_bytes
        self._raise_alarm = raise_alarm
        self._clear_alarm = clear_alarm
        self._standing: set[str] = set()  # alarms about the layer
        self._inbox = ""
        self._changes = 0
        self._asked_all: tuple[int, asyncio.Future[None] | None] = (-1, None)
        self._tasks: list[asyncio.Task[None]] = []
        self._heard_itself_at = monotonic()
        self._is_ready = False
        self._learned = asyncio.Event()
        self._gone: dict[str, None] = {}

    # --- start and stop ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the inbox and say that we are there. Raises if the layer cannot be reached."""
        self._inbox = self._inbox or await self._layer.new_channel()
        await self._layer.group_add(self._group, self._inbox)
        await self._heartbeat()
        self._tasks = [
            asyncio.create_task(self._receive()),
            asyncio.create_task(self._keep()),
        ]

    async def join(self, expected: set[str]) -> None:
        """Wait until we know what the workers of these epochs have, and until all know that we
        take sessions. Who is found to have ended is taken out of `expected` meanwhile."""
        said = monotonic()
        while True:
            known = {peer.epoch for peer in self.peers.values() if peer.is_known}
            if expected <= known and all(peer.is_known for peer in self._up()):
                break
            if monotonic() - said > self.timeout:
                said = monotonic()
                late = sorted(expected - known)
                log.warning("What other workers have is not known yet.", extra={"workers": late})
            self._learned.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.timeout / 10):
                    await self._learned.wait()
        self._is_ready = True
        self.tell(Ready())
        for peer in self._up():
            peer.is_ready = True  # they may not take sessions yet, but have to have heard it
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.timeout):
                if (settled := self.barrier()) is not None:
                    await settled

    async def stop(self) -> None:
        """Publish what was said, then leave."""
        tasks = [*self._tasks, *(task for peer in self.peers.values() for task in peer.tasks)]
        await _end(tasks)
        with contextlib.suppress(Exception):
            async with asyncio.timeout(self.timeout):
                for peer in self._up():
                    while (batch := peer.out.take()) is not None:
                        await self._send(peer, number=batch.number, words=batch.words)
        with contextlib.suppress(Exception):
            await self._layer.group_discard(self._group, self._inbox)

    # --- saying -----------------------------------------------------------------------------------

    def tell(self, message: PeerMessage, size: int = 0) -> None:
        """Say something to every peer."""
        self._changes += 1
        for peer in self.peers.values():
            if peer.is_up:
                peer.out.put(message, size)

    def tell_some(self, epochs: Iterable[str], message: PeerMessage, size: int = 0) -> None:
        """Say something to these workers, as far as they are heard of."""
        self._changes += 1
        for epoch in epochs:
            peer = self.peers.get(epoch)
            if peer is not None and peer.is_up:
                peer.told = self._changes
                peer.out.put(message, size)

    def barrier(self) -> asyncio.Future[None] | None:
        """Done when every peer that takes sessions has done what was said until now."""
        mark = self._changes
        asked_at, asked = self._asked_all
        if mark == asked_at and asked is not None and not asked.done():
            return asked
        late = [(peer, mark) for peer in self._up() if peer.is_ready and peer.settled < mark]
        future = self._acknowledged_by(late)
        if future is not None:
            self._asked_all = mark, future
        return future

    def heard(self) -> asyncio.Future[None] | None:
        """Done when those peers that were told something by `tell_some` have done it."""
        up = self._up()
        return self._acknowledged_by(
            [(peer, peer.told) for peer in up if peer.is_ready and peer.settled < peer.told]
        )

    def _acknowledged_by(self, late: list[tuple[Peer, int]]) -> asyncio.Future[None] | None:
        if not late:
            return None
        acknowledgement = Acknowledgement(len(late))
        now = monotonic()
        for peer, mark in late:
            if peer.asked < mark and peer.is_synced:  # else its snapshot ends with the question
                peer.asked = mark
                peer.out.put(BarrierRequest(mark))
            peer.waiting.append((mark, now, acknowledgement))
        return acknowledgement.future

    @property
    def number_ready(self) -> int:
        """How many other workers take sessions."""
        return sum(peer.is_up and peer.is_ready for peer in self.peers.values())

    @property
    def hears_itself(self) -> bool:
        """Whether what this worker says to all comes back to it: the layer works for it."""
        return monotonic() - self._heard_itself_at < self.timeout

    def knows(self, epochs: set[str]) -> bool:
        """Whether all that these workers, and those heard of, have is known here; not while this
        one is cut off, which it may notice before it misses the others."""
        if not self.hears_itself:
            return False
        all_known = all(peer.is_up and peer.is_known for peer in self.peers.values())
        return all_known and epochs <= self.peers.keys()

    async def silence(self) -> set[str]:
        """Hear and say nothing more; the sessions of other workers for which something was under
        way."""
        missed: set[str] = set()
        for peer in self.peers.values():
            missed |= peer.lost | peer.out.begin()
        await _end([*self._tasks, *(task for peer in self.peers.values() for task in peer.tasks)])
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_RETRY):
                await self._layer.group_discard(self._group, self._inbox)
        return missed

    def close(self) -> None:
        """Take no more sessions, and let the others know."""
        self.takes = False
        self._tasks.append(asyncio.create_task(self._heartbeat_now()))

    def figures(self) -> list[dict[str, Any]]:
        """The links as they are, for the operator."""
        return [
            {
                "to": peer.name,
                "state": "up" if peer.is_up else "down",
                "waiting_bytes": peer.out.bytes,
                "batches": peer.out.batches,
                "resent": peer.out.resent,
                "gaps": peer.incoming.gaps,
                "missed": peer.incoming.missed,
                "lost": peer.given_up,
            }
            for peer in tuple(self.peers.values())  # asked from threads, too
        ]

    def _up(self) -> list[Peer]:
        return [peer for peer in self.peers.values() if peer.is_up]

    # --- the layer --------------------------------------------------------------------------------

    async def _receive(self) -> None:
        while True:
            try:
                message = await self._layer.receive(self._inbox)
            except Exception as error:
                log.warning("The channel layer does not give what came: %s", error)
                await asyncio.sleep(_RETRY)
                continue
            if not self.may_serve():
                continue  # it is asked for again, or was given up long ago
            try:
                self._take(message)
            except Exception:
                log.exception("A message of another worker could not be read.")

    async def _publish(self, peer: Peer) -> None:
        """Publish what waits for a peer, batch by batch, while it is up."""
        while asyncio.current_task() in peer.tasks:
            await peer.wake.wait()
            peer.wake.clear()
            while (batch := peer.out.take()) is not None:
                stream = peer.out.stream
                try:
                    async with asyncio.timeout(self.timeout):
                        await self._send(peer, number=batch.number, words=batch.words)
                    self._is_well(LAYER_FULL)
                except Exception as error:  # full or out of reach; redis and layers differ in them
                    log.debug("The channel layer did not take a batch: %s", error)
                    if isinstance(error, Full):
                        self._fails(LAYER_FULL, error)
                    await asyncio.sleep(_RETRY)
                    if peer.out.stream == stream:
                        peer.out.rewind(batch.number)
                        peer.wake.clear()

    async def _send(self, peer: Peer, **more: Any) -> None:
        peer.unacknowledged = 0
        await self._layer.send(
            peer.inbox,
            {
                "type": "worker.batch",
                "epoch": self.me.epoch,
                "stream": peer.out.stream,
                "have": [peer.incoming.stream, peer.incoming.next],
                **more,
            },
        )

    async def _heartbeat(self) -> None:
        for peer in self._up():  # the same way as the batches, so that it does not overtake them
            if peer.out.bytes:
                self._answer(peer, published=[peer.out.stream, peer.out.published])
            elif peer.unacknowledged:
                self._answer(peer)
        await self._layer.group_send(
            self._group,
            {
                "type": "worker.beat",
                "protocol": self.protocol,
                "inbox": self._inbox,
                "is_ready": self._is_ready,
                "takes": self._is_ready and self.takes,
                "links": {peer.epoch: peer.out.stream for peer in self._up()},
                "name": self.me.name,
                "epoch": self.me.epoch,
                "host": self.me.host,
                "pid": self.me.pid,
            },
        )

    async def _heartbeat_now(self) -> None:
        with contextlib.suppress(Exception):  # the next one comes soon
            await self._heartbeat()

    async def _keep(self) -> None:
        """Send heartbeats, and look after the peers."""
        while True:
            await asyncio.sleep(min(1.0, self.timeout / 10))
            try:
                async with asyncio.timeout(self.timeout):
                    await self._heartbeat()
                self._is_well(LAYER_AWAY)
            except Exception as error:
                log.debug("The channel layer did not take a heartbeat: %s", error)
                self._fails(LAYER_AWAY, error)
            try:
                self._look_after()
            except Exception:
                log.exception("The links of the worker could not be looked after.")

    def _fails(self, kind: str, error: Exception) -> None:
        """The layer does not do its part: an alarm stands until it does."""
        if kind not in self._standing:
            self._standing.add(kind)
            self._raise_alarm(kind, self.me.name, str(error) or repr(error))

    def _is_well(self, kind: str) -> None:
        if kind in self._standing:
            self._standing.discard(kind)
            self._clear_alarm(kind, self.me.name)

    def _look_after(self) -> None:
        now = monotonic()
        for peer in self._up():
            with FAULTS.kept_to("worker link"):
                self._look_after_one(peer, now)

    def _look_after_one(self, peer: Peer, now: float) -> None:
        if now - peer.heard_at > self.timeout:
            self.down(peer, "sent no heartbeat in time")
            return
        if peer.waiting and now - peer.waiting[0][1] > self.timeout:
            self.down(peer, "did not acknowledge a change in time")
            return
        if peer.lost:
            peer.given_up += len(peer.lost)
            peer.out.put(LostFrames(list(peer.lost)))
            peer.lost.clear()
        if not peer.out.is_behind:
            peer.full_since = now
        elif now - peer.full_since > _READER_PATIENCE:
            peer.out.resume()

    # --- hearing ----------------------------------------------------------------------------------

    def _take(self, message: dict[str, Any]) -> None:
        epoch = message["epoch"]
        if epoch == self.me.epoch:
            self._heard_itself_at = monotonic()
            return
        if epoch in self._gone:
            return
        if message["type"] == "worker.beat":
            if message.get("protocol") == self.protocol:
                self._on_heartbeat(message)
            elif epoch not in self.refused:
                self._refuse(message)
            return
        peer = self.peers.get(epoch)
        if peer is None or not peer.is_up:
            return  # its beat comes first, and what is lost here is asked for again
        peer.heard_at = monotonic()
        self._acknowledged(peer, *message["have"])
        if "again" in message and not self._rewind(peer, *message["again"]):
            self._begin(peer)
        if "published" in message:
            peer.unacknowledged += 1  # our acknowledgement may have been lost
            if peer.incoming.hears_of(*message["published"]):
                self._noticed(peer)
                self._ask_again(peer)
        if "number" in message:
            self._take_batch(peer, message["stream"], message["number"], message["words"])

    def _on_heartbeat(self, beat: dict[str, Any]) -> None:
        peer = self.peers.get(beat["epoch"])
        if peer is None:
            peer = self.peers[beat["epoch"]] = Peer(beat, self._link_bytes)
            log.info("A worker is there.", extra={"worker": peer.name})
        peer.heard_at = monotonic()
        peer.inbox = beat["inbox"]
        peer.takes = beat["takes"]
        if not peer.is_up:
            peer.is_up = True
            peer.tasks = [asyncio.create_task(self._publish(peer))]
            self._begin(peer)
            peer.is_ready = beat["is_ready"]
            peer.tasks.append(asyncio.create_task(self._heartbeat_now()))
        peer.told_stream = beat["links"].get(self.me.epoch, 0)  # 0: to it we are down
        if peer.incoming.is_missing:
            self._ask_again(peer)

    def _refuse(self, beat: dict[str, Any]) -> None:
        """A worker that cannot be understood, of another version of the node."""
        _remember(self.refused, beat["epoch"])
        text = (
            f"The worker {beat['name']} speaks the protocol {beat.get('protocol', 1)}, this one "
            f"{self.protocol}: they do not meet. Stop the workers of the older version."
        )
        log.error(text)
        self._raise_alarm("worker-protocol", beat["name"], text)

    def _acknowledged(self, peer: Peer, stream: int, until: int) -> None:
        if stream == peer.out.stream:
            peer.out.acknowledge(until)

    def _rewind(self, peer: Peer, stream: int, number: int) -> bool:
        """False if only a new stream can help. A request about an earlier one is out of date."""
        return stream < peer.out.stream or (stream == peer.out.stream and peer.out.rewind(number))

    def _take_batch(self, peer: Peer, stream: int, number: int, batch: bytes) -> None:
        incoming = peer.incoming
        gaps = incoming.gaps
        takes = incoming.takes(stream, number)
        if incoming.gaps > gaps:
            self._noticed(peer)
        if not takes:
            if incoming.is_missing:
                self._ask_again(peer)
            return
        for message in protocol.decode(batch):
            match message:
                case BarrierRequest():
                    peer.out.put(BarrierAck(message.mark))
                case BarrierAck():
                    peer.settle(message.mark)
                case Ready():  # it takes nobody before it has done what we said until now
                    peer.is_ready = True
                    peer.settle(max(peer.settled, self._changes))
                case _:
                    if isinstance(message, SnapshotEnds):
                        peer.known_stream = peer.told_stream = stream
                        self._learned.set()
                    self._pass_on(peer, message)
        peer.unacknowledged += len(batch)
        if peer.unacknowledged >= self._link_bytes // _ACKNOWLEDGED_PART:
            peer.unacknowledged = 0
            self._answer(peer)

    def _pass_on(self, peer: Peer, message: protocol.AnyMessage) -> None:
        try:
            self.client.heard(peer, message)
        except Exception:
            log.exception("A word of another worker failed.", extra={"worker": peer.name})

    def _noticed(self, peer: Peer) -> None:
        text = f"Messages of the worker {peer.name} were lost on the way and are asked for again."
        self._raise_alarm("worker-gap", peer.name, text)

    def _ask_again(self, peer: Peer) -> None:
        now = monotonic()
        if now - peer.asked_again_at >= _ASK_AGAIN:
            peer.asked_again_at = now
            self._answer(peer, again=[peer.incoming.stream, peer.incoming.next])

    def _answer(self, peer: Peer, **more: Any) -> None:
        """Send what carries no batch: an acknowledgement, or a request for what is missing."""
        task = asyncio.create_task(self._answer_soon(peer, more))
        peer.tasks = [each for each in peer.tasks if not each.done()] + [task]

    async def _answer_soon(self, peer: Peer, more: dict[str, Any]) -> None:
        with contextlib.suppress(Exception):  # the next beat says the same
            await self._send(peer, **more)

    # --- the life of a peer -----------------------------------------------------------------------

    def _begin(self, peer: Peer) -> None:
        """Begin a new stream to a peer, with all it must know."""
        peer.lost |= peer.out.begin()
        peer.settled = peer.asked = 0
        peer.is_synced = False
        peer.out.put(SnapshotBegins())
        peer.tasks = [each for each in peer.tasks if not each.done()]
        peer.tasks.append(asyncio.create_task(self._snapshot(peer, peer.out.stream)))

    async def _snapshot(self, peer: Peer, stream: int) -> None:
        for message in self.client.snapshot(peer):
            if peer.out.stream != stream:
                return
            peer.out.put(message, len(protocol.encode([message])))
            await peer.room()
        if peer.out.stream != stream:
            return
        peer.out.put(SnapshotEnds())
        peer.is_synced = True
        peer.asked = self._changes
        peer.out.put(BarrierRequest(peer.asked))
        if self._is_ready:
            peer.out.put(Ready())

    def down(self, peer: Peer, why: str) -> None:
        """Wait no longer for a peer; what it has not acknowledged is lost, and it will be told."""
        if not peer.is_up:
            return
        peer.is_up = peer.is_ready = False
        peer.end()
        peer.lost |= peer.out.begin()
        log.warning("A worker %s.", why, extra={"worker": peer.name})
        self._raise_alarm("worker-down", peer.name, f"The worker {peer.name} {why}.")
        self.client.peer_down(peer)

    def forget(self, peer: Peer) -> None:
        """The peer has ended; nothing of it is heard any more."""
        self.peers.pop(peer.epoch, None)
        _remember(self._gone, peer.epoch)
        peer.is_up = peer.is_ready = False
        peer.end()
        peer.out.begin()
