"""The probe session, with which a worker tests its own message path.

Its client is monitoring/path_probe.py.

Rules
- Its address is one of the node, which no runtime can have, in a separate part of the routing
  table. Operators do not see it in lists, counts, records, reports or the database.
- Its messages take the same path as all others, but without policies: parsed, routed, put into an
  outbox, written to a socket; between workers over their links.
- Its connection presents a single-use pass made by this process. Limits, bans, origins and
  admission do not apply to it. A pass of another worker is answered with 421, because the kernel
  chooses which worker a connection to a shared port reaches.
- The client may make several connections and use one of them: a connection takes the session over
  with its first message, and one that says nothing takes nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import uuid
from typing import Any, cast
from urllib.parse import parse_qs

from msgnode.bus.ports import Requester
from msgnode.bus.table import RoutingTable
from msgnode.core.errors import Forbidden, NodeError
from msgnode.core.identity import Speaker
from msgnode.core.messages import Message
from msgnode.core.record import TrafficRecord

from .connection import Carry, Connection, ConnectionSettings
from .flow_control import FlowLimits
from .outbox import Link
from .rules import State
from .session import LiveSession, SessionLimits

_PARAMETER = "probe"
_BYTES = 64 * 1024


class Misdirected(NodeError):
    """The pass is one of another worker, or was used before."""

    code = 421
    title = "Misdirected request"


class ProbeEndpoint:
    """One instance per worker.

    `secret` is shared by the workers of a node; `carry` processes the frames of its connection.
    """

    def __init__(self, domain: str, secret: str, table: RoutingTable, carry: Carry) -> None:
        self._carry = carry
        id_ = uuid.uuid4().hex
        self.address = f"domain://msg-node.{domain}/health/{id_}"
        self.session = LiveSession(
            Speaker(id_, self.address), "ws", "", SessionLimits(_BYTES, stores=False), State.OPEN
        )
        self._key = hashlib.sha256(f"probe {secret}".encode()).digest()
        self._passes: set[str] = set()
        self._settings = ConnectionSettings(FlowLimits(1000, 1_000_000, 64), 3600)
        self._table = table

    def new_pass(self) -> str:
        """Make a pass for one connection; `withdraw` it if it is not used."""
        nonce = secrets.token_hex(16)
        made = f"{nonce}{self._signature(nonce)}"
        self._passes.add(made)
        return made

    def withdraw(self, made: str) -> None:
        """Invalidate a pass that was not used."""
        self._passes.discard(made)

    def admits(self, scope: dict[str, Any]) -> bool:
        """Whether an upgrade has a pass of this worker. Raises Misdirected for another worker's."""
        query: bytes = scope.get("query_string", b"")
        if _PARAMETER.encode() not in query:
            return False
        shown = parse_qs(query.decode("latin1")).get(_PARAMETER, [""])[0]
        if not hmac.compare_digest(shown[32:].encode(), self._signature(shown[:32]).encode()):
            return False
        if shown not in self._passes:
            raise Misdirected("The probe is another worker's.")
        self._passes.discard(shown)
        return True

    def connect(self, link: Link) -> Connection:
        """Make a connection of the probe; its first message takes the session over."""
        return Connection(link, "", cast(Any, self), self._carry_frame, self._settings)

    def _carry_frame(self, frame: bytes, connection: Connection, message: Message | None) -> None:
        if self.session.socket is not connection:
            self._take_over(connection)
        self._carry(frame, connection, message)

    def _take_over(self, connection: Connection) -> None:
        if self.session.socket is not None:
            self.session.socket.session = None
            self.session.detach()
        connection.session = self.session
        self.session.attach(connection)
        if self.address not in self._table.probes:  # from now on it answers
            self._table.add_probe(self.session)

    def close(self) -> None:
        """Remove the probe from the routing table."""
        self._table.remove_probe(self.session)

    def lost(self, connection: Connection) -> None:
        """Handle the loss of the connection, as the SessionManager does for others."""
        if self.session.socket is connection:
            self.session.detach()

    def _signature(self, nonce: str) -> str:
        return hmac.new(self._key, nonce.encode(), hashlib.sha256).hexdigest()[:32]


class ProbeAuthorizer:
    """The bus's Authorizer for the probe only."""

    def authenticate(self, message: Message, caller: Connection) -> None:
        """Refuse every session frame: the probe needs none."""
        raise Forbidden("A probe opens no session.")

    def authorize(self, message: Message, caller: Connection) -> tuple[Requester, Speaker]:
        """The probe's session, if `from` is its address."""
        session = caller.session
        if session is None or message.sender != session.runtime_url:
            raise Forbidden("A probe speaks as itself.")
        return session, session.speaker


class NoRecord:
    """A Recorder that discards: the probe's messages are not traffic."""

    def note(self, record: TrafficRecord) -> None:
        """Do nothing."""
        return
