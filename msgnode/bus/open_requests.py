"""Requests of a session that may still be answered: whom it asked, by sender and id.

A response is delivered to the session only if it comes from a session that was asked. Rules
- A request stays open for `seconds` at least and twice that at most, however often it is answered:
  provisional answers are followed by others, and each of several listeners may answer.
- There are two generations: when the newer is full, or its time is over, the older is forgotten and
  the newer takes its place. So no request needs a timer.
- At most `capacity` sessions asked are kept. Who asks more forgets the oldest requests of his own.
- Ids are compared by value (messages.plain_id): a response is written anew by who gives it.

A request is on the hot path and is only written down, at the end of its sender's list; the list is
indexed when a response asks for it, each entry once. Pure: no clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from msgnode.core.messages import plain_id

Asked = str | frozenset[str]
"""The id of the session that was asked, or of several."""

Dumped = Mapping[str, list[str | list[str]]]
"""A generation as it goes to another worker: sender -> id, who was asked, id, who was asked, …"""


class RequestLimits(NamedTuple):
    """See the head of the file."""

    seconds: float = 600.0
    capacity: int = 10_000


DEFAULT_LIMITS = RequestLimits()


class _Log(list[Any]):
    """The requests of one sender: id, who was asked, id, who was asked, and so on.

    The first `indexed` items stand in the index.
    """

    __slots__ = ("by_id", "indexed")

    def __init__(self, items: Iterable[Any] = ()) -> None:
        super().__init__(items)
        self.by_id: dict[str, Asked | set[str]] = {}
        self.indexed = 0

    def find(self, id_: str) -> Asked | set[str] | None:
        """Who was asked the request of this id."""
        if self.indexed < len(self):
            self._bring_up_to_date()
        return self.by_id.get(id_)

    def _bring_up_to_date(self) -> None:
        by_id = self.by_id
        for at in range(self.indexed, len(self), 2):
            raw, asked = self[at], self[at + 1]
            id_ = plain_id(raw) if isinstance(raw, bytes) else str(raw)
            before = by_id.get(id_)
            if before is None:
                by_id[id_] = asked
            elif before != asked:
                several = before if isinstance(before, set) else set(_members(before))
                several.update(_members(asked))
                by_id[id_] = several
        self.indexed = len(self)


class OpenRequests:
    """One instance per session that has asked something."""

    __slots__ = ("_count", "_half", "_last_group", "_newer", "_older", "_seconds", "_turns_at")

    def __init__(self, limits: RequestLimits, now: float) -> None:
        self._seconds = limits.seconds
        self._half = max(limits.capacity // 2, 1)
        self._newer: dict[str, _Log] = {}
        self._older: dict[str, _Log] = {}
        self._count = 0
        self._last_group: frozenset[str] = frozenset()
        self._turns_at = now + limits.seconds

    def add(self, sender: str, id_: bytes, asked: Asked, now: float, weight: int = 1) -> None:
        """The session has asked another one.

        Args:
            sender: `from` of the request.
            id_: its id as it was written.
            asked: whom it was delivered to.
            now: seconds of a clock that never goes back.
            weight: how many session ids are remembered by it.
        """
        if now >= self._turns_at or self._count >= self._half:
            self._turn(now)
        log = self._newer.get(sender)
        if log is None:
            log = self._newer[sender] = _Log()
        log += (id_, asked)
        self._count += weight

    def add_group(self, sender: str, id_: bytes, asked: frozenset[str], now: float) -> None:
        """The session has asked all listeners of an address.

        It is one set for all such requests, as long as the listeners are the same.
        """
        weight = 1 if asked is self._last_group else len(asked)
        self._last_group = asked
        self.add(sender, id_, asked, now, weight)

    def was_asked(self, sender: str, id_: str, session: str, now: float) -> bool:
        """Whether this session was asked the request (`id_` as messages.plain_id has it)."""
        if now >= self._turns_at:
            self._turn(now)
        for generation in (self._newer, self._older):
            log = generation.get(sender)
            asked = log.find(id_) if log is not None else None
            if asked is not None and (
                asked == session if asked.__class__ is str else session in asked
            ):
                return True
        return False

    def dump(self, now: float) -> tuple[float, Dumped, Dumped]:
        """What goes along when the session changes its worker.

        Returns:
            Seconds to the next turn, and both generations.
        """
        return self._turns_at - now, _dumped(self._newer), _dumped(self._older)

    @classmethod
    def loaded(
        cls, limits: RequestLimits, turns_in: float, newer: Dumped, older: Dumped, now: float
    ) -> OpenRequests:
        """Those of a session that has come from another worker, which dumped them."""
        requests = cls(limits, now)
        requests._turns_at = now + min(turns_in, limits.seconds)
        requests._newer, requests._older = _loaded(newer), _loaded(older)
        requests._count = sum(
            1 if isinstance(asked, str) else len(asked)
            for items in newer.values()
            for asked in items[1::2]
        )
        return requests

    def __len__(self) -> int:
        """How many requests are remembered."""
        return sum(len(log) // 2 for each in (self._newer, self._older) for log in each.values())

    def _turn(self, now: float) -> None:
        due = self._turns_at
        is_late = now >= due + self._seconds
        is_due = now >= due and not is_late  # the next turn is due by the clock, not from now
        self._older = {} if is_late else self._newer
        self._newer = {}
        self._count = 0
        self._last_group = frozenset()
        self._turns_at = (due if is_due else now) + self._seconds


def _members(asked: Asked) -> frozenset[str]:
    return frozenset((asked,)) if isinstance(asked, str) else asked


def _dumped(generation: dict[str, _Log]) -> Dumped:
    return {
        sender: [
            plain_id(item) if isinstance(item, bytes)
            else item if isinstance(item, str) else list(item)
            for item in log
        ]
        for sender, log in generation.items()
    }  # fmt: skip


def _loaded(dumped: Dumped) -> dict[str, _Log]:
    return {
        sender: _Log([item if isinstance(item, str) else frozenset(item) for item in items])
        for sender, items in dumped.items()
    }
