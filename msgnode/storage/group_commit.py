"""Group commit: one thread writes what many submit, everything that waits in one transaction.

A commit waits for the disk: a hundred changes that arrive together wait once, and nobody waits for
two commits. The owner of a GroupCommit defines what a change is and how a group is written: the
writer of session rows, the registry. Concurrent searches share a statement in the same way.

The thread takes the GIL from the event loop for each statement, and a thread that waits for the GIL
makes each read and write of a busy loop slower. So it gets what was submitted when the loop is
idle, or after HELD seconds if the loop never is.

Guarantee: submissions are written in order, each completely or not at all, and each is answered: by
its result after the commit, or by an error. A group that fails is retried in halves, so that only
the culprit is refused, and a few culprits do not cost the others a commit each. The same is done if
somebody else keeps one of its rows locked; each half then waits for a shorter time. If the database
is out of reach, a submission waits for up to `patience` seconds; if its disk is full, it fails at
once. A worker whose epoch is retired writes nothing (storage/fence.py).
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
from msgnode.core import database_errors, database_limit
from msgnode.core.errors import Conflict, InternalFault, NodeError, TooMany, Unavailable
from msgnode.core.faults import FAULTS
from msgnode.core.histogram import Histogram

from .fence import Fenced

log = logging.getLogger(__name__)

_RETRY_PAUSE = 0.2
_IDLE = 1.0
"""Seconds without work after which the thread closes its database connection."""

HELD = 0.02
"""Seconds for which a busy loop keeps submissions, so that more of them share a transaction."""
_NOTHING = 50e-6
"""A turn of the loop shorter than this, in seconds, counts as idle."""

SETTLED_AT_ONCE = 25
"""Submissions that are settled in one turn of the loop, because each then sends an answer."""

Item = TypeVar("Item")


class _Job(NamedTuple):
    item: Any
    future: asyncio.Future[Any]
    at: float


class GroupCommit(Generic[Item]):
    """A queue and the one thread that empties it.

    Args:
        name: the name of the thread.
        commit: writes a group in one transaction of its own, in the thread. It returns for each
            item its result, or the exception that refuses this item only; it raises if the whole
            group has failed.
        most: most items in a group.
        capacity: most items that may wait; further submissions are refused. None: no limit, if the
            submitters bound them.
        patience: seconds for which a database out of reach is waited for.
        fenced: called in the thread when the database has refused the worker's epoch.
        refusal: the text of the error when there is no room.
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
        self._new: list[_Job] = []  # not passed to the thread yet
        self._oldest = 0.0  # when the first of them was submitted
        self._looked = 0.0  # when the loop was last checked for being idle
        self._queue: queue.SimpleQueue[list[_Job | None]] = queue.SimpleQueue()
        self._left: list[_Job | None] = []  # the thread's: what did not fit into a group
        self._thread: threading.Thread | None = None
        self._outcomes: deque[tuple[_Job, Any]] = deque()

    @property
    def backlog(self) -> int:
        """The number of submissions that wait for their transaction."""
        return self._submitted - self._taken

    def submit(self, item: Item) -> asyncio.Future[Any]:
        """Queue an item, from the event loop; never blocks.

        Returns:
            A future of the item's result, done after the commit. It raises Conflict if a row breaks
            a constraint, and Unavailable if the database is out of reach or full.

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
        """Pass on new submissions if the loop was idle in its last turn."""
        now = time.perf_counter()
        if now - self._looked < _NOTHING or now - self._oldest > HELD:
            self._hand_in()
        elif self._new:
            self._looked = now
            asyncio.get_running_loop().call_soon(self._look)

    def _hand_in(self) -> None:
        """Pass new submissions to the thread."""
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
        """The waiting submissions, at least one; closes the connection of an idle thread."""
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
        """Write a group; return for each job its result, or the exception that refuses it."""
        deadline = jobs[-1].at + self._patience
        while True:
            try:
                return self._attempt(jobs, self._patience)
            except (OperationalError, InterfaceError) as error:
                if database_errors.is_locked(error):
                    try:
                        return self._around_locks(jobs, error, time.monotonic() + self._patience)
                    finally:
                        connections.close_all()  # the next one waits for as long as usual
                # If its disk is full, waiting would not help.
                if database_errors.is_full(error) or time.monotonic() > deadline:
                    return _refused(jobs, error)
                time.sleep(_RETRY_PAUSE)
            except Exception as error:
                if len(jobs) == 1:
                    return _refused(jobs, error)
                half = len(jobs) // 2
                return [*self._commit(jobs[:half]), *self._commit(jobs[half:])]

    def _attempt(self, jobs: list[_Job], limit: float) -> Sequence[Any]:
        """Try to write jobs within a limit in seconds; an error of the database is raised."""
        try:
            with database_limit.at_most(limit):
                return self._write([job.item for job in jobs])
        except Fenced as refusal:
            if self._fenced is not None:
                self._fenced()
            return [refusal] * len(jobs)
        except (OperationalError, InterfaceError):
            connections.close_all()
            raise

    def _around_locks(self, jobs: list[_Job], error: Exception, until: float) -> Sequence[Any]:
        """Write jobs of which some are for rows that somebody else keeps locked; refuse those.

        Those that have not been tried by `until` are refused, too.
        """
        if len(jobs) == 1 or time.monotonic() > until:
            return _refused(jobs, error)
        half = len(jobs) // 2
        outcomes: list[Any] = []
        for some in (jobs[:half], jobs[half:]):
            try:
                outcomes += self._attempt(some, self._patience / 4)
            except Exception as again:
                outcomes += self._around_locks(some, again, until)
        return outcomes

    def _tell(self, jobs: list[_Job], outcomes: Sequence[Any]) -> None:
        told = list(zip(jobs, outcomes, strict=True))
        try:
            jobs[0].future.get_loop().call_soon_threadsafe(self._take_outcomes, told)
        except RuntimeError:  # the loop has ended, so nobody is waiting
            log.warning("A commit came too late to be answered.")

    # --- on the event loop ------------------------------------------------------------------------

    def _take_outcomes(self, outcomes: list[tuple[_Job, Any]]) -> None:
        is_settling = bool(self._outcomes)
        self._outcomes.extend(outcomes)
        if not is_settling:
            self._settle()

    def _settle(self) -> None:
        """Settle some of the finished submissions, in order.

        Other work gets a turn of the loop between two batches.
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


def _refused(jobs: list[_Job], error: Exception) -> list[NodeError]:
    if isinstance(error, OperationalError | InterfaceError) or database_errors.is_damaged(error):
        FAULTS.note(database_errors.PART, error)
    return [_in_words(error)] * len(jobs)


def _in_words(error: Exception) -> NodeError:
    if isinstance(error, NodeError):
        return error
    if isinstance(error, IntegrityError):
        return Conflict("Already in use.")
    if isinstance(error, DatabaseError | InterfaceError):
        return Unavailable(f"{database_errors.in_words(error)}; try again later.")
    log.error("A change could not be written.", exc_info=error)
    return InternalFault()
