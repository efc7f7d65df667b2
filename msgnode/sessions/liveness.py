"""Checks whether a session's socket is still alive, when a newcomer is refused because of it.

A socket may have died silently (a cable, a frozen page); normally the node notices that at
PING_TIMEOUT. If such a socket is the only obstacle for a newcomer, it is pinged at once.

Rules
- A socket that sends anything within LIVENESS_SECONDS of the ping is alive, and stays. One
  that sends nothing is dropped, as at PING_TIMEOUT, and its session is detached.
- If that cannot be determined (the node has paused reading the socket, cannot write to it, has no
  pings on its server, or its worker does not answer), nothing is dropped, and the newcomer is told
  to try again.
- A socket has one check at a time, however many newcomers wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from msgnode.bus.ports import Listener
from msgnode.core.faults import FAULTS
from msgnode.core.pending import Pending

from .manager import SessionManager
from .session import LiveSession

LIVENESS_SECONDS = 2.0
"""A socket that is alive answers a ping within its round trip, and who waits for it is a person."""
WORKER_SECONDS = 1.0
"""Seconds that another worker's answer may take in addition to LIVENESS_SECONDS."""

Outcome = bool | None
"""True: alive. False: dead, and its session is detached. None: unknown."""


class _Check:
    def __init__(self, session: Listener) -> None:
        self.session = session
        self.waiting: list[Callable[[Outcome], None]] = []
        self.timer: asyncio.TimerHandle | None = None


class LivenessChecks:
    """One instance per worker. `ask_worker` has a session's own worker check its socket."""

    def __init__(
        self,
        sessions: SessionManager,
        ask_worker: Callable[[Listener], None] | None = None,
        seconds: float = LIVENESS_SECONDS,
    ) -> None:
        self._ask_worker = ask_worker
        self._sessions = sessions
        self._seconds = seconds
        self._under_way: dict[str, _Check] = {}
        sessions.on_detached.append(self._detached)

    def before(self, sessions: Sequence[Listener], checked: dict[str, bool]) -> Pending:
        """The Pending to raise until the sockets of these sessions have been checked.

        `checked` gets the sessions that are still connected then, and whether they have answered.
        """
        return Pending("Who is there", partial(self._ask_all, tuple(sessions), checked))

    def ask(self, session: Listener, then: Callable[[Outcome], None]) -> None:
        """Check the socket of a session; `then` is called once, after this has returned."""
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
        """Take the outcome of a check by another worker."""
        check = self._under_way.get(session_id)
        if check is not None and not check.session.is_here:
            self._settle(check, outcome)

    def _ask_all(
        self, sessions: tuple[Listener, ...], checked: dict[str, bool], known: Callable[[], None]
    ) -> None:
        left = {each.id for each in sessions}

        def settled(id_: str, outcome: Outcome) -> None:
            if outcome is not False:
                checked[id_] = outcome is True
            left.discard(id_)
            if not left:
                known()

        for each in sessions:
            self.ask(each, partial(settled, each.id))

    def _time_is_up(self, check: _Check) -> None:
        session = check.session
        if isinstance(session, LiveSession):
            with FAULTS.kept_to("session"):
                self._sessions.drop(session)  # which settles the check
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
