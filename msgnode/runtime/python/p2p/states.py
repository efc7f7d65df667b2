"""States of P2P connections, and who may set one up when. Pure.

Requester
    created ──answered──► in-progress ──opened──► live ──lost──► disconnected ──redial──► created
       └──refused──► failed ◄──broken, timed out──┘
    created, in-progress ──glare──► in-progress   (the other side's invitation is awaited)
    live ──idle, forbidden──► ended; disconnected ──exhausted──► ended; failed ──forgotten──► ended

Handler, for each remote runtime
    created ──announced──► in-progress ──opened──► live ──lost──► disconnected ──forgotten──► ended

It follows docs/reference/p2p.md, rows 17-25.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from msgnode.core import addresses

MAX_KEPT = 10_000  # remote runtimes whose failures or invitations are remembered


class State(StrEnum):
    """The words of `<stub URL>/status`, and NONE and ENDED, which nobody hears."""

    NONE = ""
    CREATED = "created"
    IN_PROGRESS = "in-progress"
    LIVE = "live"
    DISCONNECTED = "disconnected"
    FAILED = "failed"
    ENDED = "ended"


class Event(StrEnum):
    """What happens to a connection."""

    DEPLOYED = "deployed"  # requester: the stub is there; handler: invited
    ANSWERED = "answered"  # the invitation was, and the object made
    ANNOUNCED = "announced"  # the handler's own object was
    REFUSED = "refused"
    GLARE = "glare"
    OPENED = "opened"
    TIMED_OUT = "timed out"
    BROKEN = "broken"  # ICE failed, or a description was unusable
    LOST = "lost"
    IDLE = "idle"
    FORBIDDEN = "forbidden"
    REDIAL = "redial"
    EXHAUSTED = "exhausted"
    FORGOTTEN = "forgotten"


Table = dict[tuple[State, Event], State]

SETTING_UP = (State.CREATED, State.IN_PROGRESS)


def _rows(states: tuple[State, ...], state: State, *events: Event) -> Table:
    """From each of these states each of these events leads to one state."""
    return {(before, event): state for before in states for event in events}


_COMMON: Table = {
    **_rows((State.NONE,), State.CREATED, Event.DEPLOYED),
    **_rows(SETTING_UP, State.LIVE, Event.OPENED),  # the field's first word may be missing
    **_rows(SETTING_UP, State.FAILED, Event.BROKEN, Event.TIMED_OUT, Event.FORBIDDEN),
    **_rows((State.LIVE,), State.DISCONNECTED, Event.LOST, Event.IDLE, Event.FORBIDDEN),
    **_rows((State.DISCONNECTED, State.FAILED), State.ENDED, Event.FORGOTTEN),
}

REQUESTER: Table = {
    **_COMMON,
    **_rows((State.CREATED,), State.IN_PROGRESS, Event.ANSWERED),
    **_rows(SETTING_UP, State.IN_PROGRESS, Event.GLARE),
    **_rows(SETTING_UP, State.FAILED, Event.REFUSED),
    **_rows((State.DISCONNECTED,), State.CREATED, Event.REDIAL),
    **_rows((State.DISCONNECTED,), State.ENDED, Event.EXHAUSTED),
}

HANDLER: Table = {
    **_COMMON,
    **_rows((State.CREATED,), State.IN_PROGRESS, Event.ANNOUNCED),
    **_rows((State.CREATED,), State.FAILED, Event.REFUSED),
}

NO_RETURN = frozenset({Event.IDLE, Event.FORBIDDEN, Event.REFUSED})
"""Events after which the requester does not dial again by itself."""


def after(table: Table, state: State, event: Event) -> State:
    """The state that follows; the same one where the event comes too late to matter."""
    return table.get((state, event), state)


def plain(runtime: str) -> str:
    """A runtime URL in the spelling that it is known by here."""
    return runtime.removeprefix("hyperty-")


def is_of(address: str, runtime: str) -> bool:
    """Whether an address lies below a runtime's URL, in either spelling."""
    twin = addresses.runtime_twin(runtime) or runtime
    return addresses.is_under(address, runtime) or addresses.is_under(address, twin)


def keep_newest(kept: OrderedDict[Any, Any], key: Any, value: Any, most: int = MAX_KEPT) -> None:
    """Keep a key as the newest of a dict that is bounded."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)


def status_of(word: object) -> State | None:
    """The state of a status event, in the field's words too; None for one that is unknown."""
    word = "created" if word == "create" else word
    known = {each.value: each for each in State if each not in (State.NONE, State.ENDED)}
    return known.get(word) if isinstance(word, str) else None


def stays_requester(own: str, other: str) -> bool:
    """Whether the runtime `own` goes on with its invitation when both invite at once."""
    return _comparable(own) < _comparable(other)


def _comparable(runtime: str) -> str:
    scheme, colon, rest = runtime.partition(":")
    return f"runtime:{rest}" if colon and scheme in addresses.RUNTIME_SCHEMES else runtime


def runtime_of_handler(handler: str) -> str:
    """The runtime URL above a handler's, "" if there is none (the field's domain-level form)."""
    if addresses.parse(handler).scheme not in addresses.RUNTIME_SCHEMES:
        return ""
    head, mark, tail = handler.partition("/p2phandler/")
    return head if mark and tail and addresses.parse(head).path else ""


@dataclass(slots=True)
class Quarantine:
    """Remote runtimes that are left alone after a failure."""

    first: float = 30.0
    longest: float = 1800.0
    _failures: OrderedDict[str, tuple[int, float]] = field(default_factory=OrderedDict)

    def failed(self, runtime: str, now: float) -> float:
        """Note a failure. Returns when the next try may be made."""
        count = self._failures.get(runtime, (0, 0.0))[0]
        until = now + min(self.longest, self.first * 2.0 ** min(count, 20))
        keep_newest(self._failures, runtime, (count + 1, until))
        return until

    def until(self, runtime: str) -> float:
        """When the next try may be made; 0 for a runtime that did not fail."""
        return self._failures.get(runtime, (0, 0.0))[1]

    def lift(self, runtime: str) -> None:
        """A connection came about: failures count from the beginning again."""
        self._failures.pop(runtime, None)


@dataclass(slots=True)
class Redials:
    """When a lost connection is dialled again: at most `tries` times in `span` seconds."""

    tries: int = 6
    span: float = 600.0
    longest: float = 60.0
    _made: deque[float] = field(default_factory=deque)

    def next(self, now: float, jitter: float) -> float | None:
        """Seconds until the next try, which counts from now on; None if there were too many.

        Args:
            now: by the monotonic clock.
            jitter: from 0 to 1, at random.
        """
        while self._made and self._made[0] <= now - self.span:
            self._made.popleft()
        count = len(self._made)
        if count >= self.tries:
            return None
        self._made.append(now)
        if not count:
            return jitter
        return min(self.longest, 2.0**count) * (0.5 + jitter / 2)


@dataclass(slots=True)
class Invitations:
    """How many invitations are taken."""

    connections: int = 32
    each_minute: int = 10
    _came: OrderedDict[str, deque[float]] = field(default_factory=OrderedDict)

    def is_too_many(self, runtime: str, connections: int, now: float) -> bool:
        """Count an invitation; whether it is one too many (429).

        Args:
            runtime: URL of the runtime that invites.
            connections: that there are already, to other runtimes.
            now: by the monotonic clock.
        """
        came = self._came.get(runtime) or deque()
        keep_newest(self._came, runtime, came)
        while came and came[0] <= now - 60.0:
            came.popleft()
        if len(came) >= self.each_minute or connections >= self.connections:
            return True
        came.append(now)
        return False

    def forget_last(self, runtime: str) -> None:
        """The last one was not of this runtime."""
        if came := self._came.get(runtime):
            came.pop()


class InvitationLimits:
    """The invitations that come, and the set-ups that were begun for them.

    Nobody has proved who he is when he invites: see docs/reference/p2p.md, row 24.
    """

    def __init__(self, field_at_a_time: int = 8) -> None:
        self._field_at_a_time = field_at_a_time
        self._of_runtimes, self._of_stubs, self._of_field = (Invitations() for _ in range(3))
        self._under_way: dict[object, tuple[str, bool]] = {}

    def is_too_many(
        self, runtime: str, stub: str, is_field: bool, connections: int, now: float
    ) -> bool:
        """Count an invitation; whether it is one too many (429).

        Args:
            runtime: that it names.
            stub: likewise.
            is_field: whether it is one of the field's.
            connections: that there are already, to other runtimes.
            now: by the monotonic clock.
        """
        begun = self._under_way.values()
        connections += sum(each != runtime for each, _ in begun)
        if is_field:
            is_full = sum(is_other for _, is_other in begun) >= self._field_at_a_time
            return is_full or self._of_field.is_too_many(runtime, connections, now)
        is_stubs = self._of_stubs.is_too_many(f"{runtime} {stub}", 0, now)
        return is_stubs or self._of_runtimes.is_too_many(runtime, connections, now)

    def begin(self, set_up: object, runtime: str, is_field: bool) -> None:
        """A set-up is begun."""
        self._under_way[set_up] = runtime, is_field

    def end(self, set_up: object) -> None:
        """It has come to its channel, or to nothing."""
        self._under_way.pop(set_up, None)

    def denied(self, runtime: str) -> None:
        """This runtime has not made the invitation that names it."""
        self._of_runtimes.forget_last(runtime)
