"""The children of a data object: what its observers add to it, such as a chat's messages. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .changes import is_same, plain, size_of

MAX_CHILDREN = 10_000
MAX_SIZE = 4 * 1024 * 1024  # bytes of all of them
MAX_ID = 500  # characters
_MAX_DONE = 1_000  # requests of observers that are remembered
_MAX_ONCE = 64  # characters
_PART = 50_000  # bytes of children that go with one answer


@dataclass(frozen=True, slots=True)
class Child:
    """One child: its id, the hyperty that made it, and what it is."""

    id: str
    source: str
    value: Any


@dataclass(frozen=True, slots=True)
class ChildEvent:
    """`type` is "create", "update" or "delete"."""

    type: str
    id: str
    source: str
    value: Any


def event_of(kind: str, child: Child) -> ChildEvent:
    """What happened to a child, with a value that nobody else holds."""
    return ChildEvent(kind, child.id, child.source, plain(child.value, is_ours=False))


class Done:
    """The latest requests of observers that were done: one that is sent again is not done again."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str], None] = {}

    def has(self, sender: str, once: Any) -> bool:
        """Whether this was done; `once` names the request, if its sender has a name for it."""
        return isinstance(once, str) and (sender, once) in self._keys

    def add(self, sender: str, once: Any) -> None:
        """This was done."""
        if isinstance(once, str) and len(once) <= _MAX_ONCE:
            self._keys[sender, once] = None
            if len(self._keys) > _MAX_DONE:
                del self._keys[next(iter(self._keys))]


class Children:
    """All of one object, in the order in which they came."""

    def __init__(self) -> None:
        self._all: dict[str, Child] = {}
        self._sizes: dict[str, int] = {}
        self._orders: dict[str, int] = {}
        self._last = 0
        self._size = 0

    def get(self, id_: str) -> Child | None:
        """One of them."""
        return self._all.get(id_)

    def all(self) -> list[Child]:
        """Copies of all of them: whoever changes one changes nothing here."""
        return [
            Child(each.id, each.source, plain(each.value, is_ours=False))
            for each in self._all.values()
        ]

    def put(self, id_: Any, source: str, value: Any) -> Child:
        """Put a child in, or a new value in its place.

        Raises:
            OverflowError: there is no room.
            TypeError: it is no child.
        """
        if not isinstance(id_, str) or not 0 < len(id_) <= MAX_ID or id_ == "__proto__":
            raise TypeError(f"The id of a child has 1 to {MAX_ID} characters.")
        child = Child(id_, source, plain(value, is_ours=False))
        size = size_of(asdict(child))
        others = self._size - self._sizes.get(id_, 0)
        is_full = id_ not in self._all and len(self._all) >= MAX_CHILDREN
        if is_full or others + size > MAX_SIZE:
            text = (
                f"A data object has at most {MAX_CHILDREN} children of {MAX_SIZE} bytes together."
            )
            raise OverflowError(text)
        if id_ not in self._all:
            self._last += 1
            self._orders[id_] = self._last
        self._all[id_] = child
        self._sizes[id_] = size
        self._size = others + size
        return child

    def delete(self, id_: str) -> Child | None:
        """Take a child out; it, if there was one."""
        self._size -= self._sizes.pop(id_, 0)
        self._orders.pop(id_, None)
        return self._all.pop(id_, None)

    def parts(self) -> list[dict[str, Any]]:
        """As they travel, in parts of at most 50,000 bytes each or one child."""
        parts: list[dict[str, Any]] = []
        size = _PART + 1
        for id_, child in self._all.items():
            size += self._sizes[id_]
            if size > _PART:
                parts.append({})
                size = self._sizes[id_]
            told = {"resource": id_, "source": child.source, "value": child.value}
            parts[-1][id_] = {**told, "order": self._orders[id_]}
        return parts

    def replace(self, objects: Mapping[str, Any]) -> list[ChildEvent]:
        """Take over what the reporter says there is; what has changed by that.

        Args:
            objects: id -> `source`, `value`, and `order`: where it comes among the others. Without
                one as they are listed, which objects in JavaScript do with numbers first.
        """
        events = []
        for child in list(self._all.values()):
            if child.id not in objects:
                self.delete(child.id)
                events.append(event_of("delete", child))
        for id_, told in sorted(objects.items(), key=_order):
            known = self._all.get(id_)
            value = told.get("value")
            if known is None or not is_same(known.value, value):
                child = self.put(id_, str(told.get("source", "")), value)
                kind = "create" if known is None else "update"
                events.append(event_of(kind, child))
        return events


def _order(listed: tuple[str, Any]) -> int:
    order = listed[1].get("order")
    return order if isinstance(order, int) else 0
