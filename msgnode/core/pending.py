"""What is said when a message cannot be judged yet, because a fact about it is on its way."""

from __future__ import annotations

from collections.abc import Callable

Then = Callable[[Callable[[], None]], None]


class Pending(Exception):
    """Raised before anything has changed or been counted; the message is to be carried again.

    `when_known` takes a callback and calls it once: when the fact is known or given up. How long
    that may take (3 s, architecture 1) is the affair of whoever raises; a fact given up is not
    waited for again, the judgement then fails closed.
    """

    def __init__(self, what: str, when_known: Then) -> None:
        super().__init__(f"{what} is not at hand yet")
        self.when_known = when_known
