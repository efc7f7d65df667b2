"""What packages ask of the group commit writer: rows to create, to change, to delete, or a call.

A component changes memory at once, submits the same change here and is told when it is committed:
its answer is the result of the future. If the commit fails the future raises, and the component
undoes what it did.

Rows of many submissions are written with one statement: `Create`, `Update` and `Delete` keep their
order for what belongs to one session, and `Together` among its own; between sessions they have
none. A `Call` comes after everything submitted before it and before everything submitted later.
A session is named by its id, 32 hexadecimal digits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Create:
    """New rows of one model: the values of its columns, without those that have their default.

    A row that belongs to a session has its `session_id`.
    """

    model: type[Any]
    rows: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Update:
    """New values for columns of a session's own row."""

    session_id: str
    columns: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Delete:
    """The rows of a model (one with a `session`) that belong to a session.

    All of them, or those of these addresses.
    """

    model: type[Any]
    session_id: str
    addresses: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Together:
    """Something for `action`, which is called once for all submissions of a transaction.

    It gets their items after the rows are written, and is the same object for all of them.
    """

    action: Callable[[list[Any]], None]
    item: Any


@dataclass(frozen=True, slots=True)
class Call:
    """Anything else to do inside the transaction, in the writer's thread."""

    action: Callable[[], None]


Change = Create | Update | Delete | Together | Call


class Findable(dict[str, Any]):
    """The body of an answer that holds once every worker can find what it names.

    None has to have been told: it is of addresses that nobody can know yet.
    """


Barrier = Callable[[], asyncio.Future[None] | None]
"""Something to wait for until every worker routes what this one does; None if they do."""


def no_barrier() -> None:
    """The barrier of a node of one worker."""


def found_at_once(name: str) -> None:
    """The same of one name: whoever is there is found at once."""


def after_barrier(barrier: Barrier, then: Callable[[], None]) -> None:
    """Call `then` once every worker routes what this one does now; at once if they all do."""
    waiting = barrier()
    if waiting is None:
        then()
    else:
        waiting.add_done_callback(lambda _: then())


def retrieve_error(future: asyncio.Future[Any]) -> None:
    """A callback for futures that not everybody waits for.

    An error that nobody asked for is no fault of the loop.
    """
    if not future.cancelled():
        future.exception()


class Writer(Protocol):
    """Commits changes in groups; see the head of the file for their order."""

    def submit(self, *changes: Change, result: Any = None) -> asyncio.Future[Any]:
        """Commit all of the changes or none of them.

        Args:
            changes: what to write; none: wait for all that was submitted before.
            result: what the future gives.

        Returns:
            A future that is done after the commit.

        Raises:
            Conflict: by the future, if a row breaks a constraint.
            Unavailable: by the future, if the database is out of reach.
        """
        ...


async def result_of(writer: Writer, call: Callable[[], Result]) -> Result:
    """Do something inside a transaction, in the writer's thread.

    Args:
        writer: commits it.
        call: what uses the database.

    Returns:
        What the call gave, once that is committed.

    Raises:
        Conflict: a row breaks a constraint.
        Unavailable: the database is out of reach.
    """
    found: list[Result] = []

    def look() -> None:
        found[:] = [call()]

    await writer.submit(Call(look))
    return found[0]
