"""A session of another worker, as this worker's bus sees it."""

from __future__ import annotations

from collections.abc import Callable

from msgnode.bus.ports import DeliveryResult, Listener, Response
from msgnode.bus.return_paths import ReturnPath
from msgnode.core import redaction
from msgnode.core.faults import FAULTS
from msgnode.core.identity import Speaker

from .peer import Peer
from .protocol import AnyFrame, CheckSocket, RequestFrame


class RemoteSession:
    """The bus's Listener for a session of another worker: frames go over the link to that worker.

    `owned`, `subscribed` and `learned` are its addresses in this routing table.
    """

    is_here = False
    token = b""

    __slots__ = (
        "_on_resume",
        "bound_at",
        "id",
        "is_behind",
        "is_connected",
        "learned",
        "owned",
        "peer",
        "runtime_url",
        "speaker",
        "subscribed",
        "successor",
        "_token_hash",
        "__weakref__",
    )

    def __init__(self, id_: str, peer: Peer) -> None:
        self.id = id_
        self.peer = peer
        self.runtime_url = ""
        self.token_hash = ""
        self.bound_at = 0.0
        self.is_connected = False
        self.is_behind = False
        self.successor: Listener | None = None
        self.speaker = Speaker(id_, "")
        self.owned: set[str] = set()
        self.subscribed: set[str] = set()
        self.learned: set[str] = set()
        self._on_resume: list[Callable[[], None]] = []

    @property
    def token_hash(self) -> str:
        """The hash of the token; setting it has the token redacted everywhere."""
        return self._token_hash

    @token_hash.setter
    def token_hash(self, token_hash: str) -> None:
        self._token_hash = token_hash
        redaction.remember(token_hash, self)

    def deliver(self, frame: bytes) -> DeliveryResult:
        """Send a frame over the link; if there is no room, the session is told of a gap."""
        peer = self.peer
        return self._taken(peer.is_up and peer.out.put_frame(self.id, frame))

    def deliver_request(self, frame: bytes, path: ReturnPath) -> DeliveryResult:
        """Send a request with the return path of its answer."""
        peer = self.peer
        return self._taken(peer.is_up and peer.out.put_beside(self.id, frame, path))

    def deliver_response(self, frame: bytes, response: Response) -> DeliveryResult:
        """Send a response; the session's worker knows whether it was asked for."""
        peer = self.peer
        return self._taken(peer.is_up and peer.out.put_beside(self.id, frame, response))

    def deliver_traced(
        self, frame: bytes, beside: Response | ReturnPath | None, traceparent: str
    ) -> DeliveryResult:
        """Send a traced frame, with its trace context in the header."""
        peer = self.peer
        return self._taken(peer.is_up and peer.out.put_beside(self.id, frame, beside, traceparent))

    def forward(self, message: AnyFrame) -> None:
        """Forward a frame from another worker, because the session has moved on."""
        path = path_of(message) if isinstance(message, RequestFrame) else None
        if message.trace:
            self.deliver_traced(message.frame, path, message.trace)
        elif path is not None:
            self.deliver_request(message.frame, path)
        else:
            self.deliver(message.frame)

    def has_asked(self, sender: str, id_: str, responder: str, now: float) -> bool:
        """Always False: only the worker of the session knows that."""
        return False

    def has_forgotten(self) -> bool:
        """Always False: only the worker of the session knows that."""
        return False

    def _taken(self, is_taken: bool) -> DeliveryResult:
        peer = self.peer
        if not is_taken:
            peer.lost.add(self.id)
            return DeliveryResult.DROPPED
        if not self.is_connected:
            return DeliveryResult.QUEUED
        if self.is_behind or peer.out.is_behind:
            return DeliveryResult.BEHIND
        return DeliveryResult.WRITTEN

    def missed(self) -> None:
        """Signal a gap to the session over its link."""
        self.peer.lost.add(self.id)

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Call back once the reader, or the link, has caught up.

        The session's worker ends a reader that takes too long.
        """
        if self.is_behind:
            self._on_resume.append(callback)
        elif self.peer.is_up and self.peer.out.is_behind:
            self.peer.out.when_writable(callback)
        else:
            callback()

    def resume(self) -> None:
        """Release everybody who waits for this reader."""
        self.is_behind = False
        callbacks, self._on_resume = self._on_resume, []
        for callback in callbacks:
            with FAULTS.kept_to("sender"):
                callback()


def path_of(message: RequestFrame) -> ReturnPath:
    """The return path of a request from another worker."""
    return ReturnPath(message.sender, message.id_key, message.asker, message.runtime_url)


def ask_worker(session: Listener) -> None:
    """Have a session's worker check its socket, and report the result."""
    if isinstance(session, RemoteSession) and session.peer.is_up:
        session.peer.out.put(CheckSocket(session.id))
