"""The node's group commit writer: changes of all sessions of a worker share transactions.

Changes of one session are applied in the order submitted (bus/writing.py). grouping.py turns rows
of many sessions into few statements; group_commit.py shares the transactions.

A commit that was not answered counts as what has become of it, as soon as the database tells
(fence.py). If that is only after its submissions were refused, and it was committed, then
memory and database differ about what the sessions hold: they are named to `on_late`, to be ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from django.db import InterfaceError, OperationalError, transaction

from msgnode.bus.writing import Change, Create, Delete
from msgnode.core.histogram import Histogram

from . import fence, grouping
from .fence import Check, Outcome, unfenced
from .group_commit import GroupCommit

log = logging.getLogger(__name__)

MAX_GROUP = 1000


class _Submission(NamedTuple):
    changes: tuple[Change, ...]
    result: Any


class _Unanswered(NamedTuple):
    """A group whose COMMIT was not answered, and the database's id of its transaction."""

    id: str
    group: list[_Submission]


class GroupWriter:
    """The bus's Writer.

    Args:
        check: raises Fenced inside a transaction if this worker may no longer write.
        fenced: called, in the writer's thread, when it did.
        patience: seconds for which a database out of reach is waited for.

    Attributes:
        on_late: each is called, on the event loop, with the ids of sessions whose changes were
            committed though they had been refused.
    """

    def __init__(
        self,
        check: Check = unfenced,
        fenced: Callable[[], None] | None = None,
        patience: float = 8.0,
    ) -> None:
        self.on_late: list[Callable[[set[str]], None]] = []
        self._check = check
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unanswered: list[_Unanswered] = []  # the writer's thread's
        self._commits: GroupCommit[_Submission] = GroupCommit(
            "group-writer", self._commit, MAX_GROUP, patience=patience, fenced=fenced
        )

    @property
    def backlog(self) -> int:
        """The number of submissions that wait for their transaction."""
        return self._commits.backlog

    @property
    def changes(self) -> int:
        """The number of submissions that were committed or refused."""
        return self._commits.committed

    @property
    def durations(self) -> Histogram:
        """The durations of group commits, in seconds."""
        return self._commits.durations

    def submit(self, *changes: Change, result: Any = None) -> asyncio.Future[Any]:
        """Never blocks. See bus.writing.Writer."""
        self._loop = asyncio.get_running_loop()
        return self._commits.submit(_Submission(changes, result))

    async def stop(self) -> None:
        """Commit what was submitted, then end the thread."""
        await self._commits.stop()

    def _commit(self, group: list[_Submission]) -> list[Any]:
        results = [each.result for each in group]
        if self._unanswered and self._is_committed(group):
            return results
        sent = ""
        try:
            with transaction.atomic():
                self._check()
                grouping.apply(change for each in group for change in each.changes)
                sent = fence.transaction_id()
        except (OperationalError, InterfaceError):
            if sent:
                self._unanswered.append(_Unanswered(sent, group))
            raise
        return results

    def _is_committed(self, group: list[_Submission]) -> bool:
        """Ask what has become of commits; whether this group, tried again, was one of them.

        Raises:
            OperationalError: the database does not tell, or is still at it.
        """
        is_committed = False
        for each in tuple(self._unanswered):
            found = fence.outcome(each.id)
            is_this = each.group[0] is group[0] and len(each.group) == len(group)
            if found is Outcome.IN_PROGRESS:
                if is_this:
                    raise OperationalError("The database is still at this commit.")
                continue
            self._unanswered.remove(each)
            if found is Outcome.COMMITTED and is_this:
                is_committed = True
            elif found is Outcome.COMMITTED:
                self._tell_late(_holders(each.group))
        return is_committed

    def _tell_late(self, ids: set[str]) -> None:
        log.warning("Changes of %s sessions were committed after they were refused.", len(ids))
        if self._loop is not None and not self._loop.is_closed():
            for each in self.on_late:
                self._loop.call_soon_threadsafe(each, ids)


def _holders(group: list[_Submission]) -> set[str]:
    """The sessions that were to hold more, or less, after these submissions."""
    changes = [change for each in group for change in each.changes]
    deleted = {each.session_id for each in changes if isinstance(each, Delete)}
    created = {
        row["session_id"]
        for each in changes
        if isinstance(each, Create)
        for row in each.rows
        if row.get("session_id")
    }
    return deleted | created
