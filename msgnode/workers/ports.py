"""The interfaces between the parts that connect workers, and to the rest of the node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgnode.bus.ports import DeliveryResult, Listener, Response


class LocalSessions(Protocol):
    """The sessions of this worker, and what they hold."""

    @property
    def sessions(self) -> Mapping[str, Listener]:
        """The sessions by id."""
        ...

    def holdings(self, session_id: str) -> tuple[list[str], list[str], list[str]]:
        """The addresses a session owns, has subscribed, has learned."""
        ...

    def withdraw(self, address: str, session: Listener) -> None:
        """End the session's ownership of the address."""
        ...

    def is_moving(self, session_id: str) -> bool:
        """Whether a session is on its way to this worker, or to another one."""
        ...

    def reassert(self, session: Listener) -> None:
        """The session is this worker's, whatever another one has written."""
        ...

    def give_up(self, session: Listener, worker: str, epoch: str) -> None:
        """The session is another worker's, whatever this one has written."""
        ...

    def missed(self, session_id: str) -> None:
        """Signal a gap to the session, whose frames were lost."""
        ...

    def respond(self, session: Listener, frame: bytes, response: Response) -> DeliveryResult | None:
        """Deliver a response from another worker; None if the session has not asked for it."""
        ...

    def undeliverable(self, frame: bytes) -> None:
        """Handle a frame for a session that has ended meanwhile."""
        ...


class ArrivalTracer(Protocol):
    """Notified of traced frames from other workers."""

    def arrived(
        self,
        traceparent: str,
        frame: bytes,
        session: Listener,
        taken: DeliveryResult | None,
        worker: str,
    ) -> None:
        """Called after the delivery of such a frame; `taken` is None for an unexpected response."""
        ...
