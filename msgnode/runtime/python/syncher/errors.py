"""What can be wrong with a data object."""

from __future__ import annotations


class BadChange(Exception):
    """A change that does not fit the data it is for."""


class SyncError(Exception):
    """A reporter, an observer, a node or a runtime answered with an error; `code` is its code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
