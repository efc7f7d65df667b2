"""Notifies listeners, such as the traffic record, of the steps in the life of sessions."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from msgnode.core.record import SessionEvent, SessionRecord

from .session import LiveSession


class SessionSteps:
    """`listeners` are called on the event loop; they must not block or raise."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[SessionRecord], None]] = []
        self.counts: Counter[SessionEvent] = Counter()

    def tell(
        self,
        session: LiveSession,
        event: SessionEvent,
        since: float = 0.0,
        ending: str = "",
        code: int = 0,
    ) -> None:
        """Notify the listeners of a step of a session.

        Args:
            session: the session.
            event: the step.
            since: when the phase that ends now began, in epoch seconds; 0 if none ends.
            ending: how it ended.
            code: the code with which the node closed its socket; 0 if it did not.
        """
        self.counts[event] += 1
        if not self.listeners:
            return
        now = time.time()
        lasted = max(0.0, now - since) if since else 0.0
        resumptions = session.resumptions if event is SessionEvent.ENDED else 0
        record = SessionRecord(
            now, session.id, session.runtime_url, event, ending, code, lasted, resumptions
        )
        for listener in self.listeners:
            listener(record)
