"""What can be wrong with a data object."""

from __future__ import annotations


class BadChange(Exception):
    """A change that does not fit the data it is for."""


class SyncError(Exception):
    """A reporter, an observer, a node or a runtime answered with an error.

    Attributes:
        code: of the answer.
        value: what the answer says besides, if it does.
    """

    def __init__(self, code: int, text: str, value: object = None) -> None:
        super().__init__(text)
        self.code = code
        self.value = value
