"""The node's group commit writer: changes of all sessions of a worker share transactions.

Changes of one session are applied in the order submitted (bus/writing.py). grouping.py turns rows
of many sessions into few statements; group_commit.py shares the transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from django.db import transaction

from msgnode.bus.writing import Change
from msgnode.core.histogram import Histogram

from . import grouping
from .fence import Check, unfenced
from .group_commit import GroupCommit

MAX_GROUP = 1000


class _Submission(NamedTuple):
    changes: tuple[Change, ...]
    result: Any


class GroupWriter:
    """The bus's Writer.

    Args:
        check: raises Fenced inside a transaction if this worker may no longer write.
        fenced: called, in the writer's thread, when it did.
        patience: seconds for which a database out of reach is waited for.
    """

    def __init__(
        self,
        check: Check = unfenced,
        fenced: Callable[[], None] | None = None,
        patience: float = 8.0,
    ) -> None:
        self._check = check
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
        return self._commits.submit(_Submission(changes, result))

    async def stop(self) -> None:
        """Commit what was submitted, then end the thread."""
        await self._commits.stop()

    def _commit(self, group: list[_Submission]) -> list[Any]:
        with transaction.atomic():
            self._check()
            grouping.apply(change for each in group for change in each.changes)
        return [each.result for each in group]
