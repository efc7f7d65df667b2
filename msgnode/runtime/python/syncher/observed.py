"""Plain data that is observed: whoever changes it, anywhere in it, is seen to.

    observed = observe({"title": "Picnic", "guests": []}, sink)
    observed["guests"].append("Bob")  # sink.changed({"attribute": "guests.0", …})

Rules
- What is put in is copied: a dict or a list belongs to one place of one data object.
- Only what JSON can say is taken; anything else is a TypeError, and nothing has changed.
- A part that was taken out, or replaced, cannot be changed any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, MutableSequence
from typing import Any, Protocol, SupportsIndex

from .changes import check_name, is_same, plain


class Sink(Protocol):
    """Who is told of changes; once it `is_ended` nothing is changed any more."""

    is_ended: bool

    def admit(self, part: Any) -> None:
        """Raise if the part cannot be taken in."""

    def changed(self, change: dict[str, Any]) -> None:
        """The change has been made."""


class _Part:
    """A dict or a list of the data; its way up leads to the root."""

    __slots__ = ("_name", "_parent", "_raw", "_sink")
    _raw: Any

    def __init__(self, raw: Any, sink: Sink | None, parent: _Part | None, name: Any) -> None:
        self._raw = raw
        self._sink = sink
        self._parent = parent
        self._name = name

    def __len__(self) -> int:
        return len(self._raw)

    def __eq__(self, other: object) -> bool:
        return bool(self._raw == (other._raw if isinstance(other, _Part) else other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._raw)

    def copy(self) -> Any:
        """The same as plain dicts and lists, which are nobody else's."""
        return plain(self._raw, is_ours=False)

    def _shown(self, name: Any) -> Any:
        value = self._raw[name]
        if isinstance(value, dict):
            return ObservedDict(value, self._sink, self, name)
        if isinstance(value, list):
            return ObservedList(value, self._sink, self, name)
        return value

    def _path(self) -> list[str]:
        """The names that lead here, to a part which is then one that can be changed."""
        if self._sink is None:
            raise TypeError("Only its reporter changes this object.")
        if self._sink.is_ended:
            raise TypeError("The object has ended.")
        path: list[str] = []
        part: _Part = self
        while part._parent is not None:
            above = part._parent._raw
            if isinstance(above, list):
                found = (n for n, item in enumerate(above) if item is part._raw)
                name: Any = next(found, None)
            else:
                name = part._name if above.get(part._name) is part._raw else None
            if name is None:
                raise TypeError("This part has been taken out of its data object.")
            path.insert(0, str(name))
            part = part._parent
        return path

    def _admit(self, part: Any) -> None:
        if self._sink is not None:
            self._sink.admit(part)

    def _tell(self, path: list[str], **change: Any) -> None:
        if self._sink is not None:
            self._sink.changed({"attribute": ".".join(path), **change})


class ObservedDict(_Part, MutableMapping[str, Any]):
    """A dict in a data object."""

    __slots__ = ()
    _raw: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self._shown(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __setitem__(self, name: str, value: Any) -> None:
        path = self._path()
        check_name(name)
        copy = plain(value, depth=len(path) + 1)
        if name in self._raw and is_same(self._raw[name], copy):
            return
        self._admit(copy)
        self._raw[name] = copy
        self._tell([*path, name], value=copy)

    def __delitem__(self, name: str) -> None:
        path = self._path()
        del self._raw[name]
        self._tell([*path, name])


class ObservedList(_Part, MutableSequence[Any]):
    """A list in a data object."""

    __slots__ = ()
    _raw: list[Any]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._shown(each) for each in range(*index.indices(len(self._raw)))]
        return self._shown(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            self._rewrite(lambda items: items.__setitem__(index, value))
            return
        path = self._path()
        at = range(len(self._raw))[index]
        copy = plain(value, depth=len(path) + 1)
        self._admit(copy)
        self._raw[at] = copy
        self._tell([*path, str(at)], value=copy)

    def __delitem__(self, index: Any) -> None:
        path = self._path()
        if isinstance(index, slice):
            found = range(*index.indices(len(self._raw)))
            if found.step != 1:
                self._rewrite(lambda items: items.__delitem__(index))
                return
        else:
            at = range(len(self._raw))[index]
            found = range(at, at + 1)
        if found:
            del self._raw[found.start : found.stop]
            change = {"attributeType": "array", "operation": "remove", "value": len(found)}
            self._tell([*path, str(found.start)], **change)

    def insert(self, index: SupportsIndex, value: Any) -> None:
        """Put a value in before an index."""
        at = range(len(self._raw) + 1)[slice(index, None)].start
        self._add(at, [value])

    def extend(self, values: Iterable[Any]) -> None:
        """Append all of these, as one change."""
        self._add(len(self._raw), list(values))

    def reverse(self) -> None:
        """Turn the list round."""
        self._rewrite(lambda items: items.reverse())

    def sort(self, *, key: Callable[[Any], Any] | None = None, reverse: bool = False) -> None:
        """Sort the list."""
        self._rewrite(lambda items: items.sort(key=key, reverse=reverse))

    def clear(self) -> None:
        """Take all out."""
        del self[:]

    def _add(self, at: int, values: list[Any]) -> None:
        path = self._path()
        copies = plain(values, depth=len(path))
        if not copies:
            return
        self._admit(copies)
        self._raw[at:at] = copies
        change = {"attributeType": "array", "operation": "add", "value": copies}
        self._tell([*path, str(at)], **change)

    def _rewrite(self, rewrite: Callable[[list[Any]], object]) -> None:
        """What moves items about is told as a new list."""
        path = self._path()
        whole = list(self._raw)
        rewrite(whole)
        whole = plain(whole, depth=len(path))
        self._admit(whole)
        self._raw[:] = whole
        self._tell(path, value=whole)


def observe(data: dict[str, Any], sink: Sink | None) -> ObservedDict:
    """Observe a plain dict that nobody else holds; without a sink it is for reading only."""
    return ObservedDict(data, sink, None, "")
