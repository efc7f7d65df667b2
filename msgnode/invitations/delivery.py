"""Delivers invitations to their runtimes, at any worker and whenever they return.

A waiting invitation is a row; this worker only remembers for which runtimes there are some. It
checks when an invitation is left or withdrawn, when a session opens or resumes, and when one
identifies itself.

Of several workers the one that claims the row delivers the invitation and then marks it delivered.
If it is killed, frozen or loses the session in between, the row is free again after
endpoints.LEASE, and the session's worker checks again: an invitation is delivered at least once
while its runtime is here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from msgnode.bus.notices import Notices
from msgnode.bus.ports import Listener
from msgnode.bus.table import RoutingTable
from msgnode.bus.writing import Call, Writer, retrieve_error
from msgnode.core.faults import FAULTS
from msgnode.core.record import SessionEvent, SessionRecord
from msgnode.sessions.rules import State
from msgnode.sessions.session import LiveSession

from . import endpoints, wire

log = logging.getLogger(__name__)

MAX_RUNTIMES = 100_000


class InvitationDelivery:
    """One instance per worker.

    Args:
        issuer: of this domain's provider; its subjects have endpoints.
        table: where the runtimes' sessions are.
        writer: reads and changes rows.
        notices: the identity manager's voice.
        clock: in seconds.
    """

    def __init__(
        self,
        issuer: str,
        table: RoutingTable,
        writer: Writer,
        notices: Notices,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issuer = issuer
        self._table = table
        self._writer = writer
        self._notices = notices
        self._clock = clock
        self._waiting: dict[str, float] = {}  # runtime -> when nothing waits for it any more
        self._later: dict[str, asyncio.TimerHandle] = {}  # runtime -> the next look
        self.steps: Counter[str] = Counter()

    def load(self) -> None:
        """Load the runtimes with waiting invitations, at the start of the worker. Blocks."""
        for runtime_url in endpoints.waiting_runtimes():
            self._note(runtime_url)

    def left(self, payload: dict[str, Any]) -> None:
        """A handler of control messages: an invitation was left."""
        runtime_url = str(payload["runtime_url"])
        self._note(runtime_url)
        self._look(runtime_url)

    def stepped(self, record: SessionRecord) -> None:
        """A listener of session steps: check a session that was opened or resumed."""
        if record.runtime in self._waiting and record.event in _ARRIVALS:
            self._look(record.runtime)

    def identified(self, session: LiveSession) -> None:
        """Check a session that is now bound to a subject; one being opened is checked later."""
        if session.runtime_url in self._waiting and session.state is State.OPEN:
            self._look(session.runtime_url)

    def stop(self) -> None:
        """Stop; waiting invitations stay in the database."""
        for each in self._later.values():
            each.cancel()
        self._later.clear()

    def _note(self, runtime_url: str) -> None:
        now = self._clock()
        self._waiting.pop(runtime_url, None)  # the newest last
        self._waiting[runtime_url] = now + wire.MAX_SECONDS
        while self._waiting:
            oldest = next(iter(self._waiting))
            if self._waiting[oldest] > now and len(self._waiting) <= MAX_RUNTIMES:
                break
            del self._waiting[oldest]

    def _look(self, runtime_url: str) -> None:
        subjects = {subject for each in self._here(runtime_url) if (subject := self._of(each))}
        if not subjects:
            return
        taken: list[endpoints.Waiting] = []
        is_elsewhere = False
        lease_ends = self._clock() + endpoints.LEASE.total_seconds()

        def take() -> None:
            nonlocal is_elsewhere
            taken[:], is_elsewhere = endpoints.take(runtime_url, subjects)

        def hand_over(done: Any) -> None:
            if done.cancelled() or done.exception() is not None:
                log.warning("Invitations could not be read; they are looked for again.")
                self._look_later(runtime_url)
                return
            over = []
            if self._clock() < lease_ends:
                over = [each for each in taken if self._hand_over(runtime_url, each)]
            if is_elsewhere or len(over) < len(taken):
                self._look_later(runtime_url)
            if over:
                said = self._writer.submit(Call(lambda: endpoints.handed_over(over)))
                said.add_done_callback(retrieve_error)  # it may come twice then

        self._writer.submit(Call(take)).add_done_callback(hand_over)

    def _look_later(self, runtime_url: str) -> None:
        """Check again when a claimed invitation is free; once at a time per runtime."""
        if runtime_url in self._later:
            return

        def look() -> None:
            del self._later[runtime_url]
            self._look(runtime_url)

        seconds = endpoints.LEASE.total_seconds() + _MARGIN
        self._later[runtime_url] = asyncio.get_running_loop().call_later(seconds, look)

    def _hand_over(self, runtime_url: str, invitation: endpoints.Waiting) -> bool:
        """Deliver to the newest session of the runtime and its user; whether there was one."""
        whose = [each for each in self._here(runtime_url) if self._of(each) == invitation.subject]
        if not whose:
            return False
        type_ = "delete" if invitation.is_withdrawal else "update"
        is_told = False
        with FAULTS.kept_to("invitation"):
            self._notices.send(invitation.address, invitation.message, (whose[-1],), type_)
            self.steps["withdrawal_delivered" if invitation.is_withdrawal else "delivered"] += 1
            is_told = True
        return is_told  # noqa: RET504 (what is kept may have raised before)

    def _here(self, runtime_url: str) -> list[Listener]:
        sessions = self._table.runtimes.get(runtime_url, ())
        return [each for each in sessions if each.is_here and each.is_connected]

    def _of(self, session: Listener) -> str:
        identity = session.speaker.identity
        return identity.subject if identity and identity.issuer == self._issuer else ""


_MARGIN = 0.1
_ARRIVALS = frozenset({SessionEvent.OPENED, SessionEvent.RESUMED})
