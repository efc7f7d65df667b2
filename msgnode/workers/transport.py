"""The transport between the workers of a node: membership, messages, and acknowledgements.

Rules
- A worker subscribes to its inbox before it announces itself. Its heartbeat in the workers' group
  tells all others that it lives, several times in `timeout` seconds. Of its links the heartbeat
  names only those that are down, and those whose snapshot (links.py) is not acknowledged yet. To
  a worker of an earlier version, which takes a link that is not named for down, all are named.
- A worker without a heartbeat for `timeout` seconds, or that does not acknowledge in that time, is
  down: nobody waits for it, frames for it are dropped and noted as lost. When it is heard of again
  a new stream begins with a snapshot (links.py).
- A worker with another protocol version has no link; an alarm names it, once. A new worker waits
  until the last of them has ended.
- `barrier` completes when every other worker that accepts sessions has processed what was sent to
  all before; `heard` when those have that were told something the others were not. What these had
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
from .linked_worker import DOWN, LinkedWorker, acknowledged_by
from .links import Links, Snapshot
from .protocol import PROTOCOL, LinkMessage, Ready
from .worker_process import WorkerId

log = logging.getLogger(__name__)

_EPOCHS_KEPT = 10_000
_LATE = 0.75
"""The part of `timeout` without a sign of life after which something said may be missing here: less
than what the other side waits before it goes on without this worker."""


class LinkTransport:
    """One instance per worker.

    `layer` is a channel layer, `secret` is shared by the workers of this node; `snapshot` is what
    another worker is told first, and `may_serve` says whether received messages may be processed.

    Attributes:
        others: the other workers that are heard of, by epoch.
        refused: epochs with another protocol version.
        takes: whether other workers may hand sessions over to this one.
        hears_all: whether all that the others say of their sessions comes; else one may have told
            its runtime that it listens, while this worker does not know it.
        handlers: the handlers of messages from other workers, by type.
        on_down: called with a worker that is no longer heard of; its sessions may return with it.
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
        self.others: dict[str, LinkedWorker] = {}
        self.takes = self.hears_all = True
        self.protocol = PROTOCOL
        self.refused: dict[str, None] = {}
        self.missed: set[str] = set()
        self.inbox = Inbox(layer, me.name, secret, alarms.raise_alarm, alarms.clear_alarm)
        self.links = Links(self.inbox, me.epoch, timeout, link_bytes, snapshot, alarms.raise_alarm)
        self.handlers = self.links.handlers
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
            known = {other.epoch for other in self.others.values() if other.is_known}
            if expected <= known and all(other.is_known for other in self._up()):
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
        for other in self._up():
            other.is_ready = True  # they may not take sessions yet, but have to have heard it
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
                for other in self._up():
                    await self.links.flush(other)
                    unsent.discard(other)
        await self.inbox.close(self.timeout)
        lost = (other.lost for other in self.others.values())
        return self.missed.union(*lost, *(other.out.begin() for other in unsent))

    async def silence(self) -> set[str]:
        """Stop receiving and sending.

        Returns:
            The sessions of other workers for which frames were still unacknowledged.
        """
        missed = (other.lost | other.out.begin() for other in self.others.values())
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
        tasks = [*self._tasks, *(task for other in self.others.values() for task in other.tasks)]
        left = {task for task in tasks if not task.done()}
        for _ in range(10):
            if not left:
                return
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=0.2)

    # --- saying -----------------------------------------------------------------------------------

    def tell(self, message: LinkMessage, size: int = 0) -> None:
        """Send a message to every other worker."""
        self.links.changes += 1
        for other in self.others.values():
            if other.is_up:
                other.out.put(message, size)

    def tell_some(self, epochs: Iterable[str], message: LinkMessage, size: int = 0) -> None:
        """Send a message to those of these workers that are heard of."""
        self.links.changes += 1
        for epoch in epochs:
            other = self.others.get(epoch)
            if other is not None and other.is_up:
                other.told = self.links.changes
                other.out.put(message, size)

    def barrier(self) -> asyncio.Future[None] | None:
        """A future for when all other workers that accept sessions have processed all so far."""
        mark = self.links.changes
        asked_at, asked = self._asked_all
        if mark == asked_at and asked is not None and not asked.done():
            return asked
        late = [(other, mark) for other in self._up() if other.is_ready and other.settled < mark]
        future = acknowledged_by(late)
        if future is not None:
            self._asked_all = mark, future
        return future

    def heard(self) -> asyncio.Future[None] | None:
        """A future for when the workers that `tell_some` has told something have processed it.

        What they had sent here before they knew has come by then, too: `BarrierAck` (protocol.py).
        """
        up = self._up()
        return acknowledged_by(
            [(other, other.told) for other in up if other.is_ready and other.settled < other.told]
        )

    def done_by(self, epoch: str) -> asyncio.Future[None] | None:
        """A future for when another worker has processed all messages so far, or is down."""
        other = self.others.get(epoch)
        if other is None or not other.is_up:
            return None
        self.links.changes += 1
        return acknowledged_by([(other, self.links.changes)])

    # --- who is there -----------------------------------------------------------------------------

    @property
    def number_ready(self) -> int:
        """The number of other workers that accept sessions."""
        return sum(other.is_up and other.is_ready for other in self.others.values())

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
        all_known = all(other.is_up and other.is_known for other in self.others.values())
        return all_known and epochs <= self.others.keys()

    def figures(self) -> list[dict[str, Any]]:
        """The current figures of the links, for the operator."""
        return [other.figures() for other in tuple(self.others.values())]  # asked from threads, too

    def down(self, other: LinkedWorker, why: str) -> None:
        """Take a worker for down: what it has not acknowledged is lost, and it will be told."""
        if not other.is_up:
            return
        self.links.close(other)
        self.hears_all = False
        log.warning("A worker %s.", why, extra={"worker": other.name})
        self._raise_alarm("worker-down", other.name, f"The worker {other.name} {why}.")

    def forget(self, other: LinkedWorker) -> None:
        """Forget another worker that has ended."""
        self.others.pop(other.epoch, None)
        _remember(self._gone, other.epoch)
        self.links.close(other)
        self.missed |= other.lost

    def _up(self) -> list[LinkedWorker]:
        return [other for other in self.others.values() if other.is_up]

    # --- signs of life ----------------------------------------------------------------------------

    async def _heartbeat(self) -> None:
        for other in self._up():
            self.links.say_how_far(other)
        is_ready = self.links.is_ready
        said = {other.epoch: other.beat_stream for other in self.others.values()}
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
        """Send heartbeats, and check the other workers."""
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
        for other in self._up():
            with FAULTS.kept_to("worker link"):
                if now - other.heard_at > self.timeout:
                    self.down(other, "sent no heartbeat in time")
                elif other.waiting and now - other.waiting[0][1] > self.timeout:
                    self.down(other, "did not acknowledge a change in time")
                else:
                    self.links.look_after(other)
        self._check_hearing()

    def _check_hearing(self) -> None:
        oldest = monotonic() - self.timeout * _LATE
        self.hears_all = self._heard_itself_at > oldest and all(
            other.is_up and other.is_known and other.heard_at > oldest
            for other in self.others.values()
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
            other = self.others.get(epoch)
            if other is not None and other.is_up:  # its beat comes first; what is lost is asked for
                self.links.take(other, message)
                if not self.hears_all:
                    self._check_hearing()

    def _on_heartbeat(self, beat: dict[str, Any]) -> None:
        other = self.others.get(beat["epoch"])
        if other is None:
            other = self.others[beat["epoch"]] = LinkedWorker(beat, self.links.link_bytes)
            log.info("A worker is there.", extra={"worker": other.name})
        other.hear_beat(beat, self.me.epoch)
        self.hears_all = self.hears_all and other.is_known
        if not other.is_up:
            self.links.open(other)
            other.is_ready = beat["is_ready"]
            other.tasks.append(asyncio.create_task(self._heartbeat_now()))
        if other.incoming.is_missing:
            self.links.ask_again(other)

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
