"""The open requests of a session: which sessions it asked, by sender and request id.

A response is delivered to the session only if it comes from a session that was asked. Rules
- A request stays open for at least `seconds` and at most twice that, however often it is answered:
  provisional answers are followed by others, and each of several listeners may answer.
- There are two generations: when the newer one is full or its time is over, the older is dropped
  and the newer takes its place. So no request needs a timer.
- At most `capacity` ids of asked sessions are kept. A session that asks more loses its own oldest
  requests.
- Ids are compared by value (messages.plain_id), because the responder may spell them differently.

Adding a request is on the hot path, so it is only appended to its sender's list. What the list has
moves to the sender's index when a response is looked up. Pure: no clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from msgnode.core.messages import plain_id

Asked = str | frozenset[str]
"""The id of the session that was asked, or the ids of several."""

Dumped = Mapping[str, list[str | list[str]]]
"""A generation as sent to another worker: sender -> [id, asked, id, asked, …]."""


class RequestLimits(NamedTuple):
    """The limits that the head of the file explains."""

    seconds: float = 600.0  # longer than people think about a request
    capacity: int = 10_000


DEFAULT_LIMITS = RequestLimits()


class _Log(list[Any]):
    """The requests of one sender that are not in its index yet: id, asked, id, asked and so on."""

    __slots__ = ("by_id",)

    def __init__(self, items: Iterable[Any] = ()) -> None:
        super().__init__(items)
        self.by_id: dict[str, Asked | set[str]] = {}

    def indexed(self) -> dict[str, Asked | set[str]]:
        """The sessions that were asked each request, by its id."""
        if self:
            self._move_to_index()
        return self.by_id

    def _move_to_index(self) -> None:
        by_id = self.by_id
        for at in range(0, len(self), 2):
            raw, asked = self[at], self[at + 1]
            id_ = plain_id(raw) if isinstance(raw, bytes) else str(raw)
            before = by_id.get(id_)
            if before is None:
                by_id[id_] = asked
            elif before != asked:
                several = before if isinstance(before, set) else set(_members(before))
                several.update(_members(asked))
                by_id[id_] = several
        self.clear()


class OpenRequests:
    """One instance per session that has sent a request."""

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
        """Add a request of the session.

        Args:
            sender: `from` of the request.
            id_: its id as written.
            asked: the session or sessions it was delivered to.
            now: seconds of a monotonic clock.
            weight: how many session ids this adds to the capacity in use.
        """
        if now >= self._turns_at or self._count >= self._half:
            self._turn(now)
        log = self._newer.get(sender)
        if log is None:
            log = self._newer[sender] = _Log()
        log += (id_, asked)
        self._count += weight

    def add_group(self, sender: str, id_: bytes, asked: frozenset[str], now: float) -> None:
        """Add a request to all listeners of an address.

        Consecutive requests to the same listeners pass the same set, which then counts once.
        """
        weight = 1 if asked is self._last_group else len(asked)
        self._last_group = asked
        self.add(sender, id_, asked, now, weight)

    def was_asked(self, sender: str, id_: str, session: str, now: float) -> bool:
        """Whether this session was asked the request; `id_` is as messages.plain_id returns it."""
        if now >= self._turns_at:
            self._turn(now)
        for generation in (self._newer, self._older):
            log = generation.get(sender)
            asked = log.indexed().get(id_) if log is not None else None
            if asked is not None and (
                asked == session if asked.__class__ is str else session in asked
            ):
                return True
        return False

    def dump(self, now: float) -> tuple[float, Dumped, Dumped]:
        """The state to send along when the session moves to another worker.

        Returns:
            Seconds until the generations change, the newer and the older generation.
        """
        return self._turns_at - now, _dumped(self._newer), _dumped(self._older)

    @classmethod
    def loaded(
        cls, limits: RequestLimits, turns_in: float, newer: Dumped, older: Dumped, now: float
    ) -> OpenRequests:
        """Restore what another worker dumped of a session that has moved here."""
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
        """The number of requests kept."""
        generations = (self._newer, self._older)
        return sum(len(log.indexed()) for each in generations for log in each.values())

    def _turn(self, now: float) -> None:
        due = self._turns_at
        is_late = now >= due + self._seconds
        is_due = now >= due and not is_late  # then the next change is counted from `due`
        self._older = {} if is_late else self._newer
        self._newer = {}
        self._count = 0
        self._last_group = frozenset()
        self._turns_at = (due if is_due else now) + self._seconds


def _members(asked: Asked) -> frozenset[str]:
    return frozenset((asked,)) if isinstance(asked, str) else asked


def _dumped(generation: dict[str, _Log]) -> dict[str, list[str | list[str]]]:
    dumped: dict[str, list[str | list[str]]] = {}
    for sender, log in generation.items():
        items = dumped[sender] = []
        for id_, asked in log.indexed().items():
            items += (id_, asked if isinstance(asked, str) else list(asked))
    return dumped


def _loaded(dumped: Dumped) -> dict[str, _Log]:
    """A generation that was dumped; requests to the same sessions share what names these."""
    shared: dict[Asked, Asked] = {}
    generation: dict[str, _Log] = {}
    for sender, items in dumped.items():
        log = generation[sender] = _Log()
        for id_, named in zip(items[::2], items[1::2], strict=True):
            asked = named if isinstance(named, str) else frozenset(named)
            log += (id_, shared.setdefault(asked, asked))
    return generation
