"""Tells peers to close their P2P connections to a session that has lost its identity.

Rules
- A peer that accepted a session's invitation relies on its identity, and no node sees what passes
  on their channel. So the peer is told, also when the node has ended the session.
- The order goes to the peer's stub: `execute {method: "disconnect", params: [{peer: <runtime
  URL>}]}` from `domain://msg-node.<domain>/p2p`. It is not answered.
- An identity also ends when its token expires, even if its session sends nothing at that time.
- No order is sent for a session that closes itself or does not return: its runtime says `bye`, or
  its channel may outlive a bad connection to the node.
- Only the newest invitations of a session are kept. When one is dropped its peer is told at once,
  because it could not be told later; else a session could evade this by inviting many.
- The invitations move with their session to another worker; they do not survive a worker's end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import time

from msgnode.bus.holders import NO_OTHERS, Holders
from msgnode.bus.notices import Notices
from msgnode.bus.ports import Enforcer, Listener, Recorder
from msgnode.bus.table import RoutingTable
from msgnode.core.faults import FAULTS
from msgnode.core.pending import Pending

from .manager import SessionManager
from .rules import State
from .session import MAX_INVITED, LiveSession


class HangUps:
    """Sends the orders for the sessions of one worker; the peers may be at any worker."""

    def __init__(
        self,
        domain: str,
        sessions: SessionManager,
        table: RoutingTable,
        enforcer: Enforcer,
        recorder: Recorder,
        holders: Holders = NO_OTHERS,
        now: Callable[[], float] = time,
    ) -> None:
        self._holders = holders
        self._table = table
        sender = f"domain://msg-node.{domain}/p2p"
        self._notices = Notices(sender, "p2p", enforcer, recorder)
        self._now = now
        self._ending: dict[int, dict[str, LiveSession]] = {}  # by the second that they end in
        self._ends: dict[str, int] = {}
        self._beyond: dict[str, LiveSession] = {}  # with more invitations than are remembered
        sessions.on_identified.append(self.session_identified)
        sessions.on_closed.append(self.session_closed)
        sessions.on_handed_off.append(self.session_handed_off)

    def look(self) -> None:
        """Send the orders for expired identities and for invitations beyond the limit.

        Call this every second.
        """
        beyond, self._beyond = self._beyond, {}
        for session in beyond.values():
            for stub in tuple(session.invited)[:-MAX_INVITED]:
                self._order(session, stub)
        now = self._now()
        for second in [each for each in self._ending if each <= now]:
            for session in self._ending.pop(second).values():
                del self._ends[session.id]
                self._order_identified(session)

    def session_identified(self, session: LiveSession) -> None:
        """Note that a session is now bound to a subject, or to none."""
        self.session_handed_off(session.id)
        session.invites_many = self._invites_many
        if len(session.invited) > MAX_INVITED:
            self._invites_many(session)
        identity = session.speaker.identity
        if identity is None:
            self._order_identified(session)
        elif identity.expires:
            second = self._ends[session.id] = int(identity.expires) + 1
            self._ending.setdefault(second, {})[session.id] = session

    def session_handed_off(self, session_id: str) -> None:
        """Forget a session that has moved to another worker."""
        self._beyond.pop(session_id, None)
        second = self._ends.pop(session_id, None)
        if second is not None:
            ending = self._ending[second]
            del ending[session_id]
            if not ending:
                del self._ending[second]

    def session_closed(self, session: Listener, reason: str) -> None:
        """Handle the end of a session; a SessionEnd."""
        self.session_handed_off(session.id)
        if isinstance(session, LiveSession) and session.state is State.TERMINATED:
            for stub in tuple(session.invited):
                self._order(session, stub)

    def _invites_many(self, session: LiveSession) -> None:
        self._beyond[session.id] = session

    def _order_identified(self, session: LiveSession) -> None:
        for stub, had_identity in tuple(session.invited.items()):
            if had_identity:
                self._order(session, stub)

    def _order(self, session: LiveSession, stub: str) -> None:
        del session.invited[stub]
        with FAULTS.kept_to("notification"):
            if not self._holders.hears(stub):
                try:
                    self._holders.find(("hang up", stub), (stub,))
                except Pending as fact:
                    fact.when_known(partial(self._tell, stub, session.runtime_url))
                    return
            self._tell(stub, session.runtime_url)

    def _tell(self, stub: str, peer: str) -> None:
        owner = self._table.owner_of(stub)
        if owner is not None:
            body = {"method": "disconnect", "params": [{"peer": peer}]}
            self._notices.send(stub, body, (owner,), "execute")
