"""Whether anybody is still behind a session's socket: asked when a newcomer waits for the answer.

A socket may have died without a word (a cable, a frozen page); by itself the node notices at
PING_TIMEOUT. Where a newcomer is refused only because of such a socket, it is asked at once.

Rules
- A socket that sends anything within LIVENESS_TIMEOUT seconds of a ping is alive, and stays. One
  that sends nothing is dropped as at PING_TIMEOUT, its session detached.
- Where it cannot be told (the node itself is not reading the socket, or cannot write to it, or its
  server sends no pings for the node, or its worker does not answer), nothing is dropped, and the
  newcomer is told to try again.
- A socket is asked once at a time, however many newcomers wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from msgnode.bus.ports import Listener
from msgnode.core.faults import FAULTS
from msgnode.core.pending import Pending

from .manager import SessionManager
from .session import LiveSession

WORKER_SECONDS = 1.0
"""Seconds that another worker's answer may take beyond LIVENESS_TIMEOUT."""

Outcome = bool | None
"""True: it has answered. False: it has not, and its session is detached. None: cannot be told."""


class Newcomer(Protocol):
    """Who waits.

    `checked` names the sessions that were asked for it and are still connected, and says whether
    they have answered.
    """

    checked: dict[str, bool]


class _Check:
    def __init__(self, session: Listener) -> None:
        self.session = session
        self.waiting: list[Callable[[Outcome], None]] = []
        self.timer: asyncio.TimerHandle | None = None


class LivenessChecks:
    """One instance per worker. `ask_worker` has the other worker of a session ask its socket."""

    def __init__(
        self,
        sessions: SessionManager,
        seconds: float,
        ask_worker: Callable[[Listener], None] | None = None,
    ) -> None:
        self._ask_worker = ask_worker
        self._sessions = sessions
        self._seconds = seconds
        self._under_way: dict[str, _Check] = {}
        sessions.on_detached.append(self._detached)

    def before(self, sessions: Sequence[Listener], newcomer: Newcomer) -> Pending:
        """What to raise until these sessions' sockets have been asked for this newcomer."""
        return Pending("Who is there", partial(self._ask_all, tuple(sessions), newcomer))

    def ask(self, session: Listener, then: Callable[[Outcome], None]) -> None:
        """Ask the socket of a session; `then` is called once, not before this returns."""
        check = self._under_way.get(session.id)
        if check is not None:
            check.waiting.append(then)
            return
        loop = asyncio.get_running_loop()
        check = self._under_way[session.id] = _Check(session)
        check.waiting.append(then)
        seconds = self._seconds if session.is_here else self._seconds + WORKER_SECONDS
        check.timer = loop.call_later(seconds, self._time_is_up, check)
        if isinstance(session, LiveSession):
            socket = session.socket
            can_be_told = (
                socket is not None
                and not socket.is_held_back
                and socket.link.ping(partial(self._settle, check, True))
            )
        else:
            can_be_told = self._ask_worker is not None
            if self._ask_worker is not None:
                self._ask_worker(session)
        if not can_be_told:
            loop.call_soon(self._settle, check, None)

    def worker_said(self, session_id: str, outcome: Outcome) -> None:
        """The worker of a session has asked its socket."""
        check = self._under_way.get(session_id)
        if check is not None and not check.session.is_here:
            self._settle(check, outcome)

    def _ask_all(
        self, sessions: tuple[Listener, ...], newcomer: Newcomer, known: Callable[[], None]
    ) -> None:
        left = {each.id for each in sessions}

        def settled(id_: str, outcome: Outcome) -> None:
            if outcome is not False:
                newcomer.checked[id_] = outcome is True
            left.discard(id_)
            if not left:
                known()

        for each in sessions:
            self.ask(each, partial(settled, each.id))

    def _time_is_up(self, check: _Check) -> None:
        session = check.session
        if isinstance(session, LiveSession):
            with FAULTS.kept_to("session"):
                self._sessions.drop(session)  # which settles it
        self._settle(check, None)

    def _detached(self, session: LiveSession) -> None:
        check = self._under_way.get(session.id)
        if check is not None:
            self._settle(check, False)

    def _settle(self, check: _Check, outcome: Outcome) -> None:
        if self._under_way.get(check.session.id) is not check:
            return
        del self._under_way[check.session.id]
        if check.timer is not None:
            check.timer.cancel()
        for then in check.waiting:
            with FAULTS.kept_to("newcomer"):
                then(outcome)
