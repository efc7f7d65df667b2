"""The WebSocket endpoints `/ws` and `/stub/connect`, as ASGI applications for all their sockets.

They are given frames by the Link that the node's server puts into the scope
(`extensions["msgnode.link"]`), without a queue; the consumers of Channels would take a task and a
thread hop for each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, Protocol
from urllib.parse import parse_qs

from msgnode.bus.ports import Proof
from msgnode.core.errors import Forbidden, NodeError, TooMany, Unavailable

from . import credentials
from .connection import Connection
from .handshake import ConnectionParts
from .outbox import Link
from .probe import ProbeEndpoint
from .rules import CloseCode
from .stub_connection import StubConnection

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
RETRY_AFTER = b"10"
"""Seconds until a client that was refused for lack of room should try again."""
Prove = Callable[[str], Awaitable[Proof]]
"""Verifies a token. Raises NodeError within seconds."""


NODE_HEADER = b"messaging-node"
"""The header with which the node of a foreign domain identifies itself."""


class ForeignNodes(Protocol):
    """Verifies connections that claim to come from the node of a foreign domain."""

    async def prove(self, header: str, source: str) -> str:
        """The domain whose node is proved by this header, "" for a visitor. Raises NodeError."""
        ...

    def came(self, connection: Connection, header: str, proved: str) -> None:
        """Called when such a connection is open."""
        ...

    def left(self, connection: Connection) -> None:
        """Called when such a connection has ended."""
        ...


class NoForeignNodes:
    """The ForeignNodes of a node without federation, which reads no such header."""

    async def prove(self, header: str, source: str) -> str:
        """Prove nothing."""
        return ""

    def came(self, connection: Connection, header: str, proved: str) -> None:
        """Do nothing."""

    def left(self, connection: Connection) -> None:
        """Do nothing."""


NO_NODES = NoForeignNodes()


class SocketConsumer:
    """`/ws`: a socket whose first frames are `open` or `re-open`."""

    def __init__(
        self,
        parts: ConnectionParts,
        prove: Prove,
        origins: Collection[str],
        probe: ProbeEndpoint,
        nodes: ForeignNodes = NO_NODES,
    ) -> None:
        self._parts = parts
        self._sockets = parts.sockets
        self._prove = prove
        self._origins = origins
        self._probe = probe
        self._nodes = nodes

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Serve one socket from its upgrade to its end; an early refusal is an HTTP response."""
        event = await receive()
        source = (scope.get("client") or [""])[0]
        if event["type"] != "websocket.connect":
            return
        is_federated = self._nodes is not NO_NODES
        of_node = credentials.header_of(scope, NODE_HEADER) if is_federated else ""
        peer = ""
        try:
            is_probe = self._probe.admits(scope)
            if not is_probe:
                self.check(scope, source)
                if of_node:
                    peer = await self._nodes.prove(of_node, source)
        except NodeError as refusal:
            await _refuse(send, refusal)
            return
        if is_probe:
            await send({"type": "websocket.accept"})
            await self._serve_probe(scope)
            return
        proof, problem = await self._proof(scope)
        agreed = credentials.agreed(scope.get("subprotocols") or ())
        await send({"type": "websocket.accept", "subprotocol": agreed})
        if problem is not None:
            code = CloseCode.NOT_IDENTIFIED
            if isinstance(problem, Unavailable | TooMany):
                code = CloseCode.GOING_AWAY
            reason = problem.description.encode()[:120].decode(errors="ignore")
            await send({"type": "websocket.close", "code": code, "reason": reason})
            return
        link = scope["extensions"]["msgnode.link"]
        connection = self.connection(link, source)
        if proof is not None:
            connection.identify(proof.identity, proof.digest)
        self._sockets.add(connection, source)
        if of_node:
            connection.set_peer(peer)
            self._nodes.came(connection, of_node, peer)
        try:
            if self.begin(connection, scope):
                await link.run(connection.frame_received)
        finally:
            self._nodes.left(connection)
            self._sockets.remove(connection, source)
            connection.lost()

    async def _serve_probe(self, scope: dict[str, Any]) -> None:
        link = scope["extensions"]["msgnode.link"]
        connection = self._probe.connect(link)
        try:
            await link.run(connection.frame_received)
        finally:
            connection.lost()

    def check(self, scope: dict[str, Any], source: str) -> None:
        """Check that the socket may be opened.

        Raises:
            NodeError: it may not; the upgrade is answered with its code.
        """
        self._sockets.check(source)
        if not credentials.origin_fits(scope, self._origins):
            raise Forbidden("Pages of this origin may not connect to this node.")

    async def _proof(self, scope: dict[str, Any]) -> tuple[Proof | None, NodeError | None]:
        """Verify the token of the upgrade: its proof, or the error.

        This happens before the socket is open, so that the first frame has an identity.
        """
        token = credentials.token_of(scope)
        if not token:
            return None, None
        try:
            return await self._prove(token), None
        except NodeError as error:
            return None, error

    def connection(self, link: Link, source: str) -> Connection:
        """Create a connection with this path's handshake."""
        return self._parts.connection(Connection, link, source)

    def begin(self, connection: Connection, scope: dict[str, Any]) -> bool:
        """Prepare the connection before its first frame; False if that ended it."""
        return True


class StubConnectConsumer(SocketConsumer):
    """`/stub/connect?runtimeURL=…`, or without the parameter and with a `cmd` frame first."""

    def check(self, scope: dict[str, Any], source: str) -> None:
        """Check as for every socket, and refuse an empty `runtimeURL`."""
        if _runtime_url(scope) == "":
            raise Forbidden("The parameter runtimeURL is empty.")
        super().check(scope, source)

    def connection(self, link: Link, source: str) -> StubConnection:
        """Create a connection that uses `cmd` frames."""
        return self._parts.connection(partial(StubConnection, self._parts.handshake), link, source)

    def begin(self, connection: Connection, scope: dict[str, Any]) -> bool:
        """Open the session at once if the URL names the runtime."""
        runtime_url = _runtime_url(scope)
        if runtime_url is not None and isinstance(connection, StubConnection):
            connection.begin(runtime_url)
        return True


async def _refuse(send: Send, refusal: NodeError) -> None:
    """Refuse an upgrade with a full HTTP response (an ASGI extension)."""
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
    if isinstance(refusal, Unavailable | TooMany):
        headers.append((b"retry-after", RETRY_AFTER))
    start = {"type": "websocket.http.response.start", "status": refusal.code, "headers": headers}
    await send(start)
    text = refusal.description.encode()
    await send({"type": "websocket.http.response.body", "body": text})


def _runtime_url(scope: dict[str, Any]) -> str | None:
    """The parameter `runtimeURL`: None if absent, "" if empty."""
    query = parse_qs(scope.get("query_string", b"").decode("latin1"), keep_blank_values=True)
    values = query.get("runtimeURL")
    return values[0] if values else None
