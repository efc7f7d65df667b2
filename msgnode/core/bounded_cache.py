"""Remembers the results of a pure function of a text, within a number of bytes.

`functools.lru_cache` limits the number of entries only, and whoever sends long texts fills any
number of them. A look-up that hits costs what a dict's costs. There are two generations: when the
younger one has half of the bytes it becomes the older one, and that is forgotten; what is still
used is taken over from there.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import getsizeof
from typing import TypeVar

T = TypeVar("T")

_ENTRY = 100  # bytes of the dict for one entry


class BoundedCache(dict[str, T]):
    """`cache[text]` is the function's result.

    Args:
        function: a pure function of a text; what it raises is not remembered.
        most_bytes: most bytes for keys and values together.
        size_of: the bytes of a value, without its key.

    Attributes:
        misses: how often the function was called.
    """

    def __init__(
        self, function: Callable[[str], T], most_bytes: int, size_of: Callable[[T], int]
    ) -> None:
        super().__init__()
        self.misses = 0
        self._function = function
        self._half = most_bytes // 2
        self._size_of = size_of
        self._room = self._half
        self._older: dict[str, T] = {}

    def __missing__(self, text: str) -> T:
        older = self._older
        if text in older:
            value = older[text]
        else:
            value = self._function(text)
            self.misses += 1
        size = _ENTRY + getsizeof(text) + self._size_of(value)
        if size <= self._half:
            self._room -= size
            if self._room < 0:
                self._older = self.copy()
                self.clear()
                self._room = self._half - size
            self[text] = value
        return value
