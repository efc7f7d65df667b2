"""Group commit: commands of many senders in one transaction.

A commit waits for the disk; a hundred registrations that arrive together wait once. `submit()` may
be called from any thread and never waits: its Future is done when the command is committed (Done),
refused (a NodeError as exception) or failed. One daemon thread works while there is work and ends
when there is none, so that no database connection is held by an idle node. What is not taken yet is
bounded by MAX_WAITING.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from concurrent.futures import Future

from django.db import close_old_connections, connections

from msgnode.core.errors import InternalFault, NodeError, TooMany, Unavailable

from . import store
from .commands import Command, Done

MAX_WAITING = 20_000
_IDLE = 1.0

log = logging.getLogger(__name__)

_Job = tuple[Command, "Future[Done]"]


class Writer:
    """The queue and its thread; `api.submit` uses one for the process."""

    def __init__(self) -> None:
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._is_working = False

    def submit(self, command: Command) -> Future[Done]:
        """Queue a command. Raises TooMany if the database cannot keep up."""
        future: Future[Done] = Future()
        with self._changed:
            if len(self._jobs) >= MAX_WAITING:
                raise TooMany("The registry has too many changes waiting; try again later.")
            self._jobs.append((command, future))
            if not self._is_working:
                self._is_working = True
                threading.Thread(target=self._work, name="registry-writer", daemon=True).start()
            self._changed.notify()
        return future

    def _work(self) -> None:
        try:
            while batch := self._take():
                close_old_connections()
                _carry_out(batch)
        finally:
            connections.close_all()

    def _take(self) -> list[_Job]:
        """The next jobs; none after a while without any, and then this thread is done."""
        with self._changed:
            if not self._jobs:
                self._changed.wait(_IDLE)
            taken = [self._jobs.popleft() for _ in range(min(len(self._jobs), store.MAX_BATCH))]
            self._is_working = bool(taken)
            return taken


def _carry_out(jobs: list[_Job]) -> None:
    running = [job for job in jobs if job[1].set_running_or_notify_cancel()]
    outcomes: list[Done | NodeError]
    try:
        outcomes = store.apply([command for command, _ in running])
    except Unavailable as error:  # of the database, whoever asks
        outcomes = [error for _ in running]
    except Exception:
        if len(running) > 1:  # one command must not fail the others
            log.exception("a registry batch failed; its commands are tried one by one")
            for job in running:
                _carry_out_one(job)
            return
        log.exception("a registry command failed")
        outcomes = [InternalFault() for _ in running]
    for (_, future), outcome in zip(running, outcomes, strict=True):
        _settle(future, outcome)


def _carry_out_one(job: _Job) -> None:
    command, future = job
    outcome: Done | NodeError
    try:
        outcome = store.apply([command])[0]
    except Unavailable as error:
        outcome = error
    except Exception:
        log.exception("a registry command failed")
        outcome = InternalFault()
    _settle(future, outcome)


def _settle(future: Future[Done], outcome: Done | NodeError) -> None:
    if isinstance(outcome, NodeError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
