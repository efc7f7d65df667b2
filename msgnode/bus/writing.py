"""The interface of the group commit writer: rows to create, update or delete, or calls.

A component changes memory at once and submits the same change here; its answer is the result of the
returned future, after the commit. If the commit fails the future raises, and the component undoes
its change.

Rows of many submissions are written with one statement. `Create`, `Update` and `Delete` keep their
order within one session, and `Together` among items of the same action; there is no order between
sessions. A `Call` runs after everything submitted before it and before everything submitted later.
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
    """New rows of one model: the values of its columns, except those that have their default.

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
    """Deletes the rows of a session in a model that has a `session`.

    All of them, or those of these addresses.
    """

    model: type[Any]
    session_id: str
    addresses: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Together:
    """An item for `action`, which is called once per transaction with all items given for it.

    It runs after the rows are written. The items of one `action` object are collected.
    """

    action: Callable[[list[Any]], None]
    item: Any


@dataclass(frozen=True, slots=True)
class Call:
    """Anything else to do inside the transaction, in the writer's thread."""

    action: Callable[[], None]


Change = Create | Update | Delete | Together | Call


class Findable(dict[str, Any]):
    """The body of an answer that is valid once every worker can find what it names.

    No worker needs to be told: its addresses are new, so none can know them otherwise.
    """


Barrier = Callable[[], asyncio.Future[None] | None]
"""Returns a future for when every worker routes as this one does; None if they all do now."""


def no_barrier() -> None:
    """The barrier of a node with one worker."""


def no_name_barrier(name: str) -> None:
    """The barrier for one name on a node with one worker."""


def after_barrier(barrier: Barrier, then: Callable[[], None]) -> None:
    """Call `then` once every worker routes as this one does now; at once if they all do."""
    waiting = barrier()
    if waiting is None:
        then()
    else:
        waiting.add_done_callback(lambda _: then())


def retrieve_error(future: asyncio.Future[Any]) -> None:
    """A callback for futures that nobody may await.

    It retrieves the error, so that the loop does not log it as never retrieved.
    """
    if not future.cancelled():
        future.exception()


class Writer(Protocol):
    """Commits changes in groups; the head of the file tells in which order."""

    def submit(self, *changes: Change, result: Any = None) -> asyncio.Future[Any]:
        """Commit all of the changes or none of them.

        Args:
            changes: what to write; with none, the future waits for everything submitted before.
            result: the result of the future.

        Returns:
            A future that is done after the commit.

        Raises:
            Conflict: through the future, if a row breaks a constraint.
            Unavailable: through the future, if the database is out of reach.
        """
        ...


async def result_of(writer: Writer, call: Callable[[], Result]) -> Result:
    """Run a call inside a transaction, in the writer's thread.

    Args:
        writer: the writer.
        call: uses the database.

    Returns:
        The result of the call, once it is committed.

    Raises:
        Conflict: a row breaks a constraint.
        Unavailable: the database is out of reach.
    """
    found: list[Result] = []

    def look() -> None:
        found[:] = [call()]

    await writer.submit(Call(look))
    return found[0]
