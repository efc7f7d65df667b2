"""What was sent on a channel and is not acknowledged yet: bounded in number and size. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from msgnode.runtime.python.messages import Message


@dataclass(slots=True)
class Item:
    """A message on its way; `is_for_node` is one that must not take the channel."""

    message: Message
    size: int
    is_for_node: bool = False
    seq: int = 0


class Window:
    """The messages of one direction, oldest first."""

    def __init__(self, most: int, most_size: int) -> None:
        self._most = most
        self._most_size = most_size
        self._items: deque[Item] = deque()
        self._size = 0

    def __len__(self) -> int:
        return len(self._items)

    def is_full(self, item: Item) -> bool:
        """Whether there is no room for this one; an empty window has room for any."""
        is_long = self._size + item.size > self._most_size
        return bool(self._items) and (is_long or len(self._items) >= self._most)

    def add(self, item: Item) -> None:
        """Keep a message that was sent."""
        self._items.append(item)
        self._size += item.size

    def drop(self, upto: int) -> bool:
        """Keep no longer what has arrived, up to this number; whether there was anything."""
        is_any = False
        while self._items and self._items[0].seq <= upto:
            self._size -= self._items.popleft().size
            is_any = True
        return is_any

    def take(self) -> list[Message]:
        """Everything that is left; it is kept no longer."""
        messages = [item.message for item in self._items]
        self._items.clear()
        self._size = 0
        return messages
