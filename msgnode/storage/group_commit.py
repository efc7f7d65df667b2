"""Group commit: what many submit is written by one thread, as much as waits in one transaction.

A commit waits for the disk; a hundred changes that arrive together wait once, and nobody waits for
two commits. What a change is, and how a group of them is written, is the affair of whoever makes
the GroupCommit: the writer of session rows, the registry. Searches that wait can share a statement
in the same way.

The thread takes the interpreter from the event loop for each statement, and one that waits for it
costs a busy loop a call of the system at every read and write. So it is given what is submitted
when the loop has nothing else to do, and every HELD seconds while it always has.

Promise: submissions are written in the order submitted, each whole or not at all, and each is
answered: by its result after the commit, or by an error. A group that fails is tried in halves, so
that only the culprit is refused and a few culprits do not cost the others a commit each. A database
out of reach is waited for until `patience` seconds after the submission; a full one is not waited
for. A worker whose epoch is retired writes nothing any more (storage/fence.py).
"""

from __future__ import annotations

import asyncio
import logging
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from django.db import (
    DatabaseError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    connections,
)

from msgnode.bus.writing import retrieve_error
from msgnode.core.errors import Conflict, InternalFault, NodeError, TooMany, Unavailable
from msgnode.core.full_disk import is_full
from msgnode.core.histogram import Histogram

from .fence import Fenced

log = logging.getLogger(__name__)

_RETRY_PAUSE = 0.2
_IDLE = 1.0
"""Seconds without work after which the thread gives its database connection back."""

HELD = 0.02
"""Seconds that a busy loop keeps what is submitted, so that more of it shares a transaction."""
_NOTHING = 50e-6
"""Seconds of a turn of the loop in which it had nothing else to do."""

SETTLED_AT_ONCE = 25
"""Submissions that are told their outcome in one turn of the loop: each answers somebody then."""

Item = TypeVar("Item")


class _Job(NamedTuple):
    item: Any
    future: asyncio.Future[Any]
    at: float


class GroupCommit(Generic[Item]):
    """A queue and the one thread that empties it.

    Args:
        name: of the thread.
        commit: writes a group in one transaction of its own, in the thread. Gives the result of
            each item, or the exception that refuses it alone; raises if the whole group failed.
        most: items in a group.
        capacity: items that may wait; beyond it a submission is refused. None: no limit, for what
            is bounded by whoever submits.
        patience: seconds that a database out of reach is waited for.
        fenced: called in the thread when the database has refused the worker's epoch.
        refusal: what is said of a submission that finds no room.
    """

    def __init__(
        self,
        name: str,
        commit: Callable[[list[Item]], Sequence[Any]],
        most: int,
        *,
        capacity: int | None = None,
        patience: float = 8.0,
        fenced: Callable[[], None] | None = None,
        refusal: str = "Too many changes are waiting; try again later.",
    ) -> None:
        self._refusal = refusal
        self.committed = 0
        self.durations = Histogram((0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0))
        self._name = name
        self._write = commit
        self._most = most
        self._capacity = capacity
        self._patience = patience
        self._fenced = fenced
        self._submitted = self._taken = 0
        self._new: list[_Job] = []  # what the thread is not given yet
        self._oldest = 0.0  # when the first of them came
        self._looked = 0.0  # when the loop was last looked at
        self._queue: queue.SimpleQueue[list[_Job | None]] = queue.SimpleQueue()
        self._left: list[_Job | None] = []  # the thread's: beyond what a group may have
        self._thread: threading.Thread | None = None
        self._outcomes: deque[tuple[_Job, Any]] = deque()

    @property
    def backlog(self) -> int:
        """Submissions that wait for their transaction."""
        return self._submitted - self._taken

    def submit(self, item: Item) -> asyncio.Future[Any]:
        """Queue an item, from the event loop; never waits.

        Returns:
            a future of the item's result, done after the commit. It raises Conflict for a row that
            breaks a constraint and Unavailable if the database is out of reach or full.

        Raises:
            TooMany: there is no room.
        """
        if self._capacity is not None and self.backlog >= self._capacity:
            raise TooMany(self._refusal)
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        future.add_done_callback(retrieve_error)
        self._submitted += 1
        if not self._new:
            self._oldest = time.perf_counter()
            self._looked = -math.inf
            loop.call_soon(self._look)
        self._new.append(_Job(item, future, time.monotonic()))
        return future

    async def stop(self) -> None:
        """Commit what was submitted, then end the thread."""
        self._hand_in()
        thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put([None])
            await asyncio.to_thread(thread.join, self._patience * 2)

    def _look(self) -> None:
        """Hand in what is new if the loop did nothing since the last look, a turn before."""
        now = time.perf_counter()
        if now - self._looked < _NOTHING or now - self._oldest > HELD:
            self._hand_in()
        elif self._new:
            self._looked = now
            asyncio.get_running_loop().call_soon(self._look)

    def _hand_in(self) -> None:
        """Give the thread what is new."""
        if not self._new:
            return
        new, self._new = self._new, []
        self._queue.put([*new])
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        is_stopping = False
        while not is_stopping:
            taken = self._take()
            is_stopping = None in taken
            jobs = [job for job in taken if job is not None and not job.future.cancelled()]
            if jobs:
                began = time.perf_counter()
                outcomes = self._commit(jobs)
                self.committed += len(jobs)
                self.durations.observe(time.perf_counter() - began)
                self._tell(jobs, outcomes)
        connections.close_all()

    def _take(self) -> list[_Job | None]:
        """What waits, at least one; an idle thread holds no connection."""
        taken = self._left
        if not taken:
            try:
                taken = self._queue.get(timeout=_IDLE)
            except queue.Empty:
                connections.close_all()
                taken = self._queue.get()
        while len(taken) < self._most and not self._queue.empty():
            taken += self._queue.get()
        taken, self._left = taken[: self._most], taken[self._most :]
        self._taken += len(taken)
        return taken

    def _commit(self, jobs: list[_Job]) -> Sequence[Any]:
        """Write a group: for each job its result, or the exception that refuses it."""
        deadline = jobs[-1].at + self._patience
        while True:
            try:
                return self._write([job.item for job in jobs])
            except Fenced as refusal:
                if self._fenced is not None:
                    self._fenced()
                return [refusal] * len(jobs)
            except (OperationalError, InterfaceError) as error:
                connections.close_all()
                if is_full(error):  # waiting would help nobody; the next group tries again
                    log.error("The database's disk is full: %s", error)
                    return [_in_words(error)] * len(jobs)
                if time.monotonic() > deadline:
                    log.exception("The database is out of reach.")
                    return [_in_words(error)] * len(jobs)
                time.sleep(_RETRY_PAUSE)
            except Exception as error:
                if len(jobs) == 1:
                    return [_in_words(error)]
                half = len(jobs) // 2
                return [*self._commit(jobs[:half]), *self._commit(jobs[half:])]

    def _tell(self, jobs: list[_Job], outcomes: Sequence[Any]) -> None:
        told = list(zip(jobs, outcomes, strict=True))
        try:
            jobs[0].future.get_loop().call_soon_threadsafe(self._take_outcomes, told)
        except RuntimeError:  # the loop has ended: nobody is waiting any more
            log.warning("A commit came too late to be answered.")

    # --- on the event loop ------------------------------------------------------------------------

    def _take_outcomes(self, outcomes: list[tuple[_Job, Any]]) -> None:
        is_settling = bool(self._outcomes)
        self._outcomes.extend(outcomes)
        if not is_settling:
            self._settle()

    def _settle(self) -> None:
        """Tell some of those that wait, in the order of their submission.

        Others have their turn of the loop between two portions.
        """
        for _ in range(min(SETTLED_AT_ONCE, len(self._outcomes))):
            job, outcome = self._outcomes.popleft()
            if job.future.done():
                continue
            if isinstance(outcome, BaseException):
                job.future.set_exception(outcome)
            else:
                job.future.set_result(outcome)
        if self._outcomes:
            asyncio.get_running_loop().call_soon(self._settle)


def _in_words(error: Exception) -> NodeError:
    if isinstance(error, NodeError):
        return error
    if isinstance(error, IntegrityError):
        return Conflict("Already in use.")
    if is_full(error):
        return Unavailable("The node's disk is full; try again later.")
    if isinstance(error, DatabaseError):
        return Unavailable("The node's database does not take the change at the moment.")
    log.error("A change could not be written.", exc_info=error)
    return InternalFault()
