"""Pending: raised when a message cannot be decided on yet, because a fact is being fetched."""

from __future__ import annotations

from collections.abc import Callable

Then = Callable[[Callable[[], None]], None]


class Pending(Exception):
    """Raised before anything has changed or been counted; the message is carried again later.

    `when_known` takes a callback and calls it once, when the fact is known or has been given up.
    Whoever raises it limits the time (3 s). A fact that was given up is not waited for again; the
    decision then fails closed.

    Args:
        what: the fact, as the subject of a sentence.
        when_known: see above.
        cost: what fetching it costs, as a number of messages; its sender is charged for it.
    """

    def __init__(self, what: str, when_known: Then, cost: int = 0) -> None:
        super().__init__(f"{what} is not at hand yet")
        self.when_known = when_known
        self.cost = cost
