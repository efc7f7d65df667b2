"""Time limits for waiting on the database: for the process, and for the current task. Pure.

A serving process sets a limit for everything it does. A task that somebody waits for, such as a
page, has a shorter one while it runs. Commands have none, because a migration may take long.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_NONE = float("inf")
_process = _NONE
_here: ContextVar[float] = ContextVar("database_limit", default=_NONE)


def limit_process(limit: float) -> None:
    """Limit every wait of this process, from its next connection on.

    Args:
        limit: in seconds.
    """
    global _process
    _process = limit


@contextmanager
def at_most(limit: float) -> Iterator[None]:
    """Limit every wait within the block, in its thread.

    Args:
        limit: in seconds; a shorter limit that is already set still applies.
    """
    before = _here.set(min(limit, _here.get()))
    try:
        yield
    finally:
        _here.reset(before)


def seconds() -> float | None:
    """The limit of a wait that begins now; None if it may take as long as it takes."""
    limit = min(_process, _here.get())
    return None if limit == _NONE else limit
