"""What the parts of a worker that meet others need of one another and of its rooms: Protocols."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

from msgnode.bus.ports import DeliveryResult, Listener, Response

from .peer import Peer
from .protocol import AnyFrame, CheckSocket, SocketChecked
from .remote import RemoteSession


class SessionsAtNames(Protocol):
    """The sessions at names, ours and those of other workers."""

    def tell_at(self, name: str, epochs: Collection[str]) -> None:
        """Tell these workers which sessions of this one are at a name."""
        ...

    def remotes_at(self, name: str) -> Iterator[RemoteSession]:
        """The sessions of other workers at a name."""
        ...

    def evict(self, name: str) -> Mapping[Peer, list[str]]:
        """Take out who is at a name; the sessions that are not in the table any more."""
        ...


class SessionHandover(Protocol):
    """What is done about sessions that change their worker."""

    def take(self, peer: Peer, session_id: str, message: AnyFrame) -> bool:
        """A frame for a session that is not here; whether it was taken."""
        ...

    def take_response(self, peer: Peer, session_id: str, frame: bytes, response: Response) -> None:
        """A response for a session that is not here."""
        ...

    def taken_over(self, session_id: str) -> None:
        """A peer has a session that we have as well: theirs counts."""
        ...

    def down(self, peer: Peer) -> None:
        """A peer is not heard of."""
        ...

    def is_leaving(self, session_id: str) -> bool:
        """Whether a session is being given to another worker."""
        ...


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

    def remote_entered(self, session: Listener) -> None:
        """A session of another worker is there, or it speaks for somebody else now."""
        ...

    def remote_left(self, session: Listener) -> None:
        """A session of another worker has ended."""
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

    def check_socket(self, peer: Peer, asked: CheckSocket) -> None:
        """Another worker asks whether anybody is behind a session's socket."""
        ...

    def socket_checked(self, peer: Peer, checked: SocketChecked) -> None:
        """Another worker has found out whether anybody is behind a session's socket."""
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
