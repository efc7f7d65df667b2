"""Watches single sessions, second by second, and their failures, only while somebody asks.

Rules
- A session is sampled from the first query about it until nobody has asked for PATIENCE seconds.
  Its seconds are in a ring of fixed size, its failures in another; equal consecutive ones are
  counted as one.
- At most MOST sessions are watched at a time; for others only the levels are reported.
- While none is watched, the pipeline has no observer from here.
- Rates of all sessions, for a list, are what has changed of their totals since the last query
  (`rates`). Totals are counted anyway, and are remembered only while somebody asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from heapq import nlargest
from time import monotonic, time

import msgspec

from msgnode.bus.ports import MessageObserver
from msgnode.core.record import Outcome, TrafficRecord
from msgnode.core.redaction import cut
from msgnode.sessions.session import LiveSession

PATIENCE = 5.0
MOST = 200
SECONDS_KEPT = 300
FAILURES_KEPT = 10
RATES_PATIENCE = 30.0
"""Seconds without a query after which totals are forgotten: older ones make no rate of now."""
RATES_OVER = 2.0
"""Fewest seconds that a rate covers, after the first."""
_FAILED = (Outcome.BLOCKED, Outcome.REFUSED, Outcome.UNDELIVERABLE, Outcome.DROPPED)


class SessionSample(msgspec.Struct, array_like=True):
    """The activity of a session in the `seconds` before `at` (seconds since the epoch).

    messages_in, bytes_in      frames read from its socket
    messages_out, bytes_out    frames for it, including queued ones
    failed     messages of its own that were refused or undeliverable
    waiting    bytes in its outbox at the end
    """

    at: float
    seconds: float
    messages_in: int = 0
    bytes_in: int = 0
    messages_out: int = 0
    bytes_out: int = 0
    failed: int = 0
    waiting: int = 0


class Failure(msgspec.Struct, array_like=True):
    """A message of the session that was not carried, as often as in a row.

    at         of the last of them, seconds since the epoch
    type, to, outcome, code, rule    as in the traffic record
    """

    at: float
    type: str
    to: str
    outcome: str
    code: int
    rule: str
    count: int = 1


class SessionFigures(msgspec.Struct, array_like=True):
    """A session as its worker sees it.

    is_held_back    its sender is paused: it sends too much, or waits for others
    is_behind       it does not read what it is sent
    totals          messages and bytes since its socket connected, and since the worker has it
    samples         the last one, or all that are kept, if requested
    """

    session: str
    worker: str
    state: str
    is_held_back: bool
    is_behind: bool
    totals: tuple[int, int, int, int]
    samples: list[SessionSample]
    failures: list[Failure]


class SessionRates(msgspec.Struct, array_like=True):
    """What a session does, for a list.

    sent, received   messages a second since the last query; None at the first one
    bytes            both ways: read since its socket connected, given since its worker has it
    """

    session: str
    sent: float | None
    received: float | None
    bytes: int


class _Watched:
    """One watched session."""

    def __init__(self, session: LiveSession, now: float) -> None:
        self.session = session
        self.asked_at = now
        self.samples: deque[SessionSample] = deque(maxlen=SECONDS_KEPT)
        self.failures: deque[Failure] = deque(maxlen=FAILURES_KEPT)
        self.failed = 0
        self._socket = session.socket
        self._before = _totals(session)
        self._at = now

    def take(self, now: float) -> None:
        """Take a sample. A socket that is new counts from nothing."""
        totals, socket = _totals(self.session), self.session.socket
        before = self._before
        if socket is not self._socket:
            before = (0, 0, *before[2:])
        read, read_bytes, given, given_bytes = (
            max(0, new - old) for new, old in zip(totals, before, strict=True)
        )
        waiting = self.session.outbox.waiting_bytes
        self.samples.append(
            SessionSample(time(), now - self._at, read, read_bytes, given, given_bytes,
                          self.failed, waiting)
        )  # fmt: skip
        self._socket, self._before, self._at, self.failed = socket, totals, now, 0

    def note(self, record: TrafficRecord) -> None:
        """A message of the session that failed."""
        self.failed += 1
        failure = Failure(
            record.at, record.type, cut(record.to), record.outcome, record.code, record.rule
        )
        last = self.failures[-1] if self.failures else None
        if last is not None and _is_alike(last, failure):
            last.count += 1
            last.at = failure.at
        else:
            self.failures.append(failure)


class WatchedSessions:
    """One a worker. `attach` gives the pipeline a tap or takes it away."""

    def __init__(
        self,
        sessions: Mapping[str, LiveSession],
        worker: str,
        attach: Callable[[MessageObserver | None], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._sessions = sessions
        self._worker = worker
        self._attach = attach
        self._clock = clock
        self._watched: dict[str, _Watched] = {}
        self._before: dict[str, tuple[float, tuple[int, int, int, int]]] = {}
        self._rates_at = float("-inf")

    def ask(self, ids: Iterable[str], is_whole: bool = False) -> list[SessionFigures]:
        """The figures of those of these sessions that this worker has.

        Args:
            ids: the sessions, which are watched from now on.
            is_whole: all seconds that are kept, not only the last.
        """
        told = []
        for id_ in ids:
            session = self._sessions.get(id_)
            if session is not None and session.runtime_url:
                told.append(self._figures(session, self._look_at(session), is_whole))
        return told

    def rates(self, ids: Iterable[str], by: str, most: int) -> list[SessionRates]:
        """What sessions do now. From any thread: it reads what is counted.

        Args:
            ids: the sessions, if they are known.
            by: else those with the highest figure of this name; "" where ids are given.
            most: how many of those.
        """
        now = self._rates_at = self._clock()
        if not by:
            found = (self._sessions.get(id_) for id_ in ids)
            return [self._rates(each, now) for each in found if each is not None]
        told = [self._rates(each, now) for each in tuple(self._sessions.values())]
        return nlargest(most, told, key=lambda each: getattr(each, by) or 0)

    def _rates(self, session: LiveSession, now: float) -> SessionRates:
        totals = _totals(session)
        at, before = self._before.get(session.id, (now, totals))
        if at == now or now - at >= RATES_OVER:
            self._before[session.id] = now, totals
        sent, received = (
            # A socket that is new counts from nothing.
            (new - old if new >= old else new) / (now - at) if now > at else None
            for new, old in ((totals[0], before[0]), (totals[2], before[2]))
        )
        return SessionRates(session.id, sent, received, totals[1] + totals[3])

    def turn(self) -> None:
        """Take samples, and stop watching sessions nobody asks for; called every second."""
        now = self._clock()
        if self._before and now - self._rates_at > RATES_PATIENCE:
            self._before = {}
        for id_, watched in tuple(self._watched.items()):
            is_over = now - watched.asked_at > PATIENCE
            if is_over or self._sessions.get(id_) is not watched.session:
                del self._watched[id_]
                if not self._watched:
                    self._attach(None)
            else:
                watched.take(now)

    def _look_at(self, session: LiveSession) -> _Watched | None:
        now = self._clock()
        watched = self._watched.get(session.id)
        if watched is None or watched.session is not session:
            if watched is None and len(self._watched) >= MOST:
                return None
            if not self._watched:
                self._attach(self._note)
            watched = self._watched[session.id] = _Watched(session, now)
        watched.asked_at = now
        return watched

    def _figures(
        self, session: LiveSession, watched: _Watched | None, is_whole: bool
    ) -> SessionFigures:
        samples = list(watched.samples) if watched is not None else []
        socket = session.socket
        return SessionFigures(
            session.id,
            self._worker,
            session.state.value,
            socket is not None and socket.is_held_back,
            session.outbox.is_behind,
            _totals(session),
            samples if is_whole else samples[-1:],
            list(watched.failures) if watched is not None else [],
        )

    def _note(self, record: TrafficRecord, body: bytes) -> None:
        if record.code >= 400 or record.outcome in _FAILED:
            watched = self._watched.get(record.session)
            if watched is not None:
                watched.note(record)


def _totals(session: LiveSession) -> tuple[int, int, int, int]:
    """Frames read and their bytes, frames given and theirs."""
    socket, outbox = session.socket, session.outbox
    read = socket.flow if socket is not None else None
    return (
        read.frames if read is not None else 0,
        read.frames_bytes if read is not None else 0,
        outbox.frames,
        outbox.frames_bytes,
    )


def _is_alike(one: Failure, other: Failure) -> bool:
    return (one.type, one.to, one.outcome, one.code, one.rule) == (
        other.type, other.to, other.outcome, other.code, other.rule,
    )  # fmt: skip
