"""The group commit writer: changes of all sessions of a worker share transactions.

The event loop submits; one thread commits whatever has come meanwhile in one transaction and tells
the loop. So a commit is shared by all that waited for it, and nobody waits for two.

Promise: what belongs to one session is applied in the order submitted (bus.writing); a submission
is applied whole or not at all; its future is done within `patience` seconds after its turn, by
commit or by error. A group that fails is tried in halves, so that only the culprit is refused and
a few culprits do not cost the others a commit each.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections import deque
from typing import Any, NamedTuple

from django.db import (
    DatabaseError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    connection,
    transaction,
)

from msgnode.bus.writing import Change, retrieve_error
from msgnode.core.errors import Conflict, InternalFault, NodeError, Unavailable
from msgnode.core.full_disk import is_full
from msgnode.core.histogram import Histogram

from . import grouping

log = logging.getLogger(__name__)

MAX_GROUP = 1000
SETTLED_AT_ONCE = 25
"""Submissions that are told their outcome in one turn of the loop: each answers somebody then."""
_RETRY_PAUSE = 0.2


class _Submission(NamedTuple):
    changes: tuple[Change, ...]
    result: Any
    future: asyncio.Future[Any]


class GroupWriter:
    """Implements the bus's Writer. `patience` is how long a lost database is waited for."""

    def __init__(self, patience: float = 8.0) -> None:
        self.changes = 0
        self.durations = Histogram((0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0))
        self._patience = patience
        self._queue: queue.SimpleQueue[_Submission | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="group-writer", daemon=True)
        self._loop: asyncio.AbstractEventLoop
        self._outcomes: deque[tuple[_Submission, Exception | None]] = deque()

    @property
    def backlog(self) -> int:
        """Submissions that wait for their transaction."""
        return self._queue.qsize()

    def start(self) -> None:
        """Begin to commit; called on the event loop that submits."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def submit(self, *changes: Change, result: Any = None) -> asyncio.Future[Any]:
        """Never blocks. See bus.writing.Writer."""
        future = asyncio.get_running_loop().create_future()
        future.add_done_callback(retrieve_error)
        self._queue.put(_Submission(changes, result, future))
        return future

    async def stop(self) -> None:
        """Commit what was submitted, then end the thread."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join, self._patience * 2)

    # --- the writer's thread ----------------------------------------------------------------------

    def _run(self) -> None:
        stopping = False
        while not stopping:
            group = [self._queue.get()]
            while len(group) < MAX_GROUP and not self._queue.empty():
                group.append(self._queue.get())
            stopping = None in group
            submissions = [each for each in group if each is not None]
            if submissions:
                began = time.perf_counter()
                outcomes = self._commit(submissions)
                self.changes += len(submissions)
                self.durations.observe(time.perf_counter() - began)
                self._tell(submissions, outcomes)
        connection.close()

    def _commit(self, group: list[_Submission]) -> list[Exception | None]:
        """Apply a group; the outcome of each submission: None or the error that refuses it."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                with transaction.atomic():
                    grouping.apply(change for each in group for change in each.changes)
                return [None] * len(group)
            except (OperationalError, InterfaceError) as error:
                connection.close()
                if is_full(error):  # waiting would help nobody; the next group tries again
                    log.error("The database's disk is full: %s", error)
                    return [_in_words(error)] * len(group)
                if time.monotonic() > deadline:
                    log.exception("The database is out of reach.")
                    return [_in_words(error)] * len(group)
                time.sleep(_RETRY_PAUSE)
            except Exception as error:
                if len(group) == 1:
                    return [_in_words(error)]
                half = len(group) // 2
                return self._commit(group[:half]) + self._commit(group[half:])

    def _tell(self, group: list[_Submission], outcomes: list[Exception | None]) -> None:
        try:
            told = list(zip(group, outcomes, strict=True))
            self._loop.call_soon_threadsafe(self._take_outcomes, told)
        except RuntimeError:  # the loop has ended: nobody is waiting any more
            log.warning("A commit came too late to be answered.")

    # --- on the event loop ------------------------------------------------------------------------

    def _take_outcomes(self, outcomes: list[tuple[_Submission, Exception | None]]) -> None:
        is_settling = bool(self._outcomes)
        self._outcomes.extend(outcomes)
        if not is_settling:
            self._settle()

    def _settle(self) -> None:
        """Tell some of those that wait, in the order of their submission; others have their turn of
        the loop between two portions."""
        for _ in range(min(SETTLED_AT_ONCE, len(self._outcomes))):
            submission, error = self._outcomes.popleft()
            if submission.future.done():
                continue
            if error is None:
                submission.future.set_result(submission.result)
            else:
                submission.future.set_exception(error)
        if self._outcomes:
            self._loop.call_soon(self._settle)


def _in_words(error: Exception) -> NodeError:
    if isinstance(error, NodeError):
        return error
    if isinstance(error, IntegrityError):
        return Conflict("Already in use.")
    if isinstance(error, DatabaseError):
        return Unavailable("The node's database does not take the change at the moment.")
    log.error("A change could not be written.", exc_info=error)
    return InternalFault()
