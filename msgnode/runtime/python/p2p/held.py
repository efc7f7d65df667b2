"""The messages that wait for their way: in order, and bounded in size. Pure."""

from __future__ import annotations

from collections import deque

from .window import Item


class Held:
    """The messages of one direction, oldest first."""

    def __init__(self, most_size: int) -> None:
        self._most_size = most_size
        self._items: deque[Item] = deque()
        self._size = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def first(self) -> Item:
        """The oldest one."""
        return self._items[0]

    def add(self, item: Item) -> bool:
        """Have a message wait; False if there is no room for it."""
        if self._size + item.size > self._most_size:
            return False
        self._items.append(item)
        self._size += item.size
        return True

    def take(self) -> Item:
        """The oldest one; it waits no longer."""
        item = self._items.popleft()
        self._size -= item.size
        return item
