"""Another worker of the node, its link, and how far both sides have come."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from time import monotonic
from typing import Any

from .protocol import BarrierRequest
from .window import ReceiveWindow, SendWindow

DOWN = 0
"""The number that a heartbeat gives for a link that is down, instead of a stream's."""


class Acknowledgement:
    """Completes when so many other workers have processed what they were told, or are down."""

    __slots__ = ("future", "left")

    def __init__(self, others: int) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.left = others

    def one_more(self) -> None:
        """Count one more worker."""
        self.left -= 1
        if not self.left:
            _done(self.future)


class LinkedWorker:
    """Another worker, as known to this one."""

    def __init__(self, beat: dict[str, Any], limit: int) -> None:
        self.name: str = beat["name"]
        self.epoch: str = beat["epoch"]
        self.host: str = beat["host"]
        self.pid: int = beat["pid"]
        self.inbox: str = beat["inbox"]
        self.wake = asyncio.Event()
        self.out = SendWindow(limit, self.wake.set)
        self.incoming = ReceiveWindow()
        self.heard_at = monotonic()
        self.is_up = False
        self.is_ready = False
        self.reads_brief_beats = False
        self.owes_entries = False  # something it has is not in the directory
        self.takes = False  # sessions that another worker gives away
        self.is_starting = True  # it will take some
        self.is_synced = False  # our snapshot is said whole
        self.snapshot_mark = 0  # the change with which it was, as the other worker was asked
        self.has_snapshot = False  # it has acknowledged that one
        self.known_stream = -1  # of it; what came before its snapshot's end is not all
        self.told_stream = DOWN  # the stream to us that it has now, by what it said last
        self.lost: set[str] = set()  # sessions of it that miss frames, to be told
        self.asked = 0
        self.settled = 0
        self.told = 0  # the last change that it was told and not all others
        self.waiting: deque[tuple[int, float, Acknowledgement]] = deque()  # change, since when
        self.given_up = 0  # how often a session was to be told of a gap
        self.unacknowledged = 0
        self.asked_again_at = 0.0
        self.full_since = 0.0
        self.tasks: list[asyncio.Task[None]] = []
        self.calls: dict[int, asyncio.Future[bytes | None]] = {}  # see rpc.py

    def __repr__(self) -> str:
        return f"<LinkedWorker {self.name}>"

    @property
    def is_known(self) -> bool:
        """Whether its state is completely known here."""
        # Its snapshot has come whole, and it has not begun another stream since.
        return self.known_stream == self.told_stream > DOWN

    @property
    def beat_stream(self) -> int | None:
        """What this worker's heartbeat says of the link; None if it need not name it."""
        if not self.is_up:
            return DOWN
        return None if self.has_snapshot and self.reads_brief_beats else self.out.stream

    def hear_beat(self, beat: dict[str, Any], own_epoch: str) -> None:
        """Process the other worker's heartbeat, and what it says of its link to this worker."""
        self.heard_at = monotonic()
        self.inbox = beat["inbox"]
        self.takes = beat["takes"]
        self.is_starting = not beat["is_ready"]
        self.reads_brief_beats = beat.get("is_brief", False)
        unnamed = self.known_stream if self.reads_brief_beats else DOWN
        self.told_stream = beat["links"].get(own_epoch, unnamed)

    def figures(self) -> dict[str, Any]:
        """The current figures of the link, for the operator."""
        return {
            "to": self.name,
            "state": "up" if self.is_up else "down",
            "waiting_bytes": self.out.bytes,
            "batches": self.out.batches,
            "resent": self.out.resent,
            "gaps": self.incoming.gaps,
            "missed": self.incoming.missed,
            "lost": self.given_up,
        }

    def acknowledge(self, mark: int) -> None:
        """Note that the other worker has acknowledged everything up to this change."""
        self.has_snapshot |= self.is_synced and mark >= self.snapshot_mark
        self.settle(mark)

    def settle(self, mark: int) -> None:
        """Complete what waits for changes up to this one."""
        self.settled = mark
        while self.waiting and self.waiting[0][0] <= mark:
            self.waiting.popleft()[2].one_more()

    def end(self) -> None:
        """End everything about the other worker; nobody waits for it any more."""
        waiting, self.waiting = self.waiting, deque()
        for _, _, acknowledgement in waiting:
            acknowledgement.one_more()
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            task.cancel()
        calls, self.calls = self.calls, {}
        for call in calls.values():
            if not call.done():
                call.set_result(None)

    async def room(self) -> None:
        """Wait until there is room for more on the link, or the other worker is down."""
        while self.is_up and not self.out.has_room:
            relieved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.out.when_writable(partial(_done, relieved))
            await relieved


def acknowledged_by(late: list[tuple[LinkedWorker, int]]) -> asyncio.Future[None] | None:
    """Ask other workers to acknowledge what they were told up to a change.

    Args:
        late: the other workers that have not acknowledged it yet, each with the change.

    Returns:
        A future for when all have, or are down; None if there are none.
    """
    if not late:
        return None
    acknowledgement = Acknowledgement(len(late))
    now = monotonic()
    for other, mark in late:
        if other.asked < mark and other.is_synced:  # else its snapshot ends with the question
            other.asked = mark
            other.out.put(BarrierRequest(mark))
        other.waiting.append((mark, now, acknowledgement))
    return acknowledgement.future


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
