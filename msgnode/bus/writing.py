"""What rooms ask of the group commit writer: rows to create, or a call inside the transaction.

A component changes memory at once, submits the same change here and is told when it is committed:
its answer is the result of the future. If the commit fails the future raises, and the component
undoes what it did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Create:
    """New rows, of one model. Neighbours of the same model are inserted together."""

    rows: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Call:
    """Anything else to do inside the transaction, in the writer's thread."""

    action: Callable[[], None]


Change = Create | Call

Barrier = Callable[[], asyncio.Future[None] | None]
"""Something to wait for until every worker routes what this one does; None if they do."""


class Writer(Protocol):
    """Commits changes in groups, in the order submitted."""

    def submit(self, *changes: Change, result: Any = None) -> asyncio.Future[Any]:
        """All of `changes` or none of them. The future gives `result` after the commit; it raises
        Conflict if a row breaks a constraint and Unavailable if the database is out of reach."""
        ...
