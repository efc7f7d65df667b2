"""Hands invitations to the runtimes they are for, wherever these are or come back to.

What was left is a row; this worker remembers only for which runtimes something waits. It looks when
an invitation is left, when a session opens or comes back, and when one says who it is. Of several
workers the one that takes the row hands it over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from msgnode.bus.notices import Notices
from msgnode.bus.ports import Listener
from msgnode.bus.table import RoutingTable
from msgnode.bus.writing import Call, Writer
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

    def load(self) -> None:
        """At the start of the worker: for whom something waits. Blocks."""
        for runtime_url in endpoints.waiting_runtimes():
            self._note(runtime_url)

    def left(self, payload: dict[str, Any]) -> None:
        """A handler of control messages: an invitation was left."""
        runtime_url = str(payload["runtime_url"])
        self._note(runtime_url)
        self._look(runtime_url)

    def stepped(self, record: SessionRecord) -> None:
        """A listener of session steps: somebody has opened a session, or come back."""
        if record.runtime in self._waiting and record.event in _ARRIVALS:
            self._look(record.runtime)

    def identified(self, session: LiveSession) -> None:
        """A session is bound to a subject; one that is being opened is looked at after that."""
        if session.runtime_url in self._waiting and session.state is State.OPEN:
            self._look(session.runtime_url)

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

        def take() -> None:
            taken[:] = endpoints.take(runtime_url, subjects)

        def hand_over(done: Any) -> None:
            if done.cancelled() or done.exception() is not None:
                log.warning("Invitations could not be read; they wait for the next look.")
                return
            for each in taken:
                with FAULTS.kept_to("invitation"):
                    self._hand_over(runtime_url, each)

        self._writer.submit(Call(take)).add_done_callback(hand_over)

    def _hand_over(self, runtime_url: str, invitation: endpoints.Waiting) -> None:
        whose = [each for each in self._here(runtime_url) if self._of(each) == invitation.subject]
        if whose:  # the newest; one that has left meanwhile lets it expire
            self._notices.send(invitation.address, invitation.message, (whose[-1],))

    def _here(self, runtime_url: str) -> list[Listener]:
        sessions = self._table.runtimes.get(runtime_url, ())
        return [each for each in sessions if each.is_here and each.is_connected]

    def _of(self, session: Listener) -> str:
        identity = session.speaker.identity
        return identity.subject if identity and identity.issuer == self._issuer else ""


_ARRIVALS = frozenset({SessionEvent.OPENED, SessionEvent.RESUMED})
