"""What the parts of a worker that meet others need of one another and of the rest: Protocols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgnode.bus.ports import DeliveryResult, Listener, Response


class LocalSessions(Protocol):
    """The sessions of this worker, and what they hold."""

    @property
    def sessions(self) -> Mapping[str, Listener]:
        """By id."""
        ...

    def holdings(self, session_id: str) -> tuple[list[str], list[str], list[str]]:
        """The addresses a session owns, has subscribed, has learned."""
        ...

    def withdraw(self, address: str, session: Listener) -> None:
        """The session does not own the address any more."""
        ...

    def missed(self, session_id: str) -> None:
        """Frames for the session were lost: tell it."""
        ...

    def respond(self, session: Listener, frame: bytes, response: Response) -> DeliveryResult | None:
        """Give a session a response from another worker; None if it has not asked for it."""
        ...

    def undeliverable(self, frame: bytes) -> None:
        """A frame came for a session that has ended meanwhile."""
        ...


class ArrivalTracer(Protocol):
    """Is told of frames that are traced and come from another worker."""

    def arrived(
        self,
        traceparent: str,
        frame: bytes,
        session: Listener,
        taken: DeliveryResult | None,
        worker: str,
    ) -> None:
        """A session was handed such a frame; `taken` is None for a response it did not ask for."""
        ...
