"""The session by which a worker watches its own path (monitoring/path_probe.py is its client).

Rules
- It is at an address of the node, where no runtime can be, in a part of the routing table of its
  own. Nothing that operators read has it: no list, count, record, report or database row.
- Its messages take the way of every other, without policies: parsed, routed, put into an outbox,
  written to a socket; between workers over their links.
- A connection of it shows a pass that this process has made, for one use. It is served whatever
  limits, bans, origins or admission say. A pass of another worker is answered 421: on a port that
  workers share the kernel chooses whom a connection reaches.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import uuid
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import parse_qs

from msgnode.bus.ports import Requester
from msgnode.bus.table import RoutingTable
from msgnode.core.errors import Forbidden, NodeError
from msgnode.core.identity import Speaker
from msgnode.core.messages import Message
from msgnode.core.record import TrafficRecord

from .connection import Connection, ConnectionSettings
from .flow_control import FlowLimits
from .outbox import Link
from .rules import State
from .session import LiveSession

_PARAMETER = "probe"
_BYTES = 64 * 1024


class Misdirected(NodeError):
    """The pass is good at another worker, or was used."""

    code = 421
    title = "Misdirected request"


class ProbeEndpoint:
    """One instance per worker.

    `secret` is common to the workers of a node; `carry` takes the frames of its connection.
    """

    def __init__(
        self,
        domain: str,
        secret: str,
        table: RoutingTable,
        carry: Callable[[bytes, Connection], None],
    ) -> None:
        self._carry = carry
        id_ = uuid.uuid4().hex
        self.address = f"domain://msg-node.{domain}/health/{id_}"
        self.session = LiveSession(
            id_=id_,
            runtime_url=self.address,
            token="",
            token_hash="",
            handshake="ws",
            speaker=Speaker(id_, self.address),
            outbox_bytes=_BYTES,
            stores=False,
            state=State.OPEN,
        )
        self._key = hashlib.sha256(f"probe {secret}".encode()).digest()
        self._passes: set[str] = set()
        self._settings = ConnectionSettings(FlowLimits(1000, 1_000_000, 64), 3600)
        self._table = table

    def new_pass(self) -> str:
        """For one connection; `withdraw` it when it is not needed any more."""
        nonce = secrets.token_hex(16)
        made = f"{nonce}{self._signature(nonce)}"
        self._passes.add(made)
        return made

    def withdraw(self, made: str) -> None:
        """Take back a pass that was not used."""
        self._passes.discard(made)

    def admits(self, scope: dict[str, Any]) -> bool:
        """Whether an upgrade shows a pass of this worker. Raises Misdirected for one of another."""
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
        """The probe's connection from now on, instead of the one it had."""
        connection = Connection(link, "", cast(Any, self), self._carry, self._settings)
        if self.session.socket is not None:
            self.session.socket.session = None
            self.session.detach()
        connection.session = self.session
        self.session.attach(connection)
        if self.address not in self._table.probes:  # from now on it answers
            self._table.add_probe(self.session)
        return connection

    def close(self) -> None:
        """Nobody is to expect answers any more."""
        self._table.remove_probe(self.session)

    def lost(self, connection: Connection) -> None:
        """The connection is gone (what it asks of its sessions)."""
        if self.session.socket is connection:
            self.session.detach()

    def _signature(self, nonce: str) -> str:
        return hmac.new(self._key, nonce.encode(), hashlib.sha256).hexdigest()[:32]


class ProbeAuthorizer:
    """Implements the bus's Authorizer for the probe alone."""

    def authenticate(self, message: Message, caller: Connection) -> None:
        """Refuses: the probe's session is there without one."""
        raise Forbidden("A probe opens no session.")

    def authorize(self, message: Message, caller: Connection) -> tuple[Requester, Speaker]:
        """The probe, if the message says that it is from there."""
        session = caller.session
        if session is None or message.sender != session.runtime_url:
            raise Forbidden("A probe speaks as itself.")
        return session, session.speaker


class NoRecord:
    """Implements the bus's Recorder: what the probe says is nobody's traffic."""

    def note(self, record: TrafficRecord) -> None:
        """The probe's messages are in no record."""
        return
