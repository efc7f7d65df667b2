"""Orders to hang up: peers leave the P2P connections of a session that has lost its identity.

Rules
- Who took a session's invitation believes in the identity behind it, and no node hears what passes
  on their channel. So the peer is told, also when the node has ended the session.
- It is told at its own stub: `execute {method: "disconnect", params: [{peer: <runtime URL>}]}` from
  `domain://msg-node.<domain>/p2p`. Nobody answers.
- A session that closes itself, or does not come back, is no reason: its runtime says `bye`, or its
  channel outlives a bad line to the node.
- What a session has invited goes with it to another worker, and is not kept over a worker's end.
"""

from __future__ import annotations

from functools import partial

from msgnode.bus.holders import NO_OTHERS, Holders
from msgnode.bus.notices import Notices
from msgnode.bus.ports import Enforcer, Listener, Recorder
from msgnode.bus.table import RoutingTable
from msgnode.core.faults import FAULTS
from msgnode.core.pending import Pending

from .session import LiveSession


class HangUps:
    """The orders of one worker, for its own sessions; their peers may be at any."""

    def __init__(
        self, domain: str, table: RoutingTable, enforcer: Enforcer, recorder: Recorder
    ) -> None:
        self.holders: Holders = NO_OTHERS
        self._table = table
        sender = f"domain://msg-node.{domain}/p2p"
        self._notices = Notices(sender, "p2p", enforcer, recorder)

    def session_identified(self, session: LiveSession) -> None:
        """A session is bound to a subject from now on, or to none."""
        if session.invited and session.speaker.identity is None:
            for stub, had_identity in tuple(session.invited.items()):
                if had_identity:
                    self._order(session, stub)

    def session_closed(self, session: Listener, reason: str) -> None:
        """A SessionEnd."""
        if isinstance(session, LiveSession) and session.was_ended:
            for stub in tuple(session.invited):
                self._order(session, stub)

    def _order(self, session: LiveSession, stub: str) -> None:
        del session.invited[stub]
        with FAULTS.kept_to("notification"):
            if not self.holders.hears(stub):
                try:
                    self.holders.find(("hang up", stub), (stub,))
                except Pending as fact:
                    fact.when_known(partial(self._tell, stub, session.runtime_url))
                    return
            self._tell(stub, session.runtime_url)

    def _tell(self, stub: str, peer: str) -> None:
        owner = self._table.owner_of(stub)
        if owner is not None:
            body = {"method": "disconnect", "params": [{"peer": peer}]}
            self._notices.send(stub, body, (owner,), "execute")
