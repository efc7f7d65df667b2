"""Orders to hang up: peers leave the P2P connections of a session that has lost its identity.

Rules
- Who took a session's invitation believes in the identity behind it, and no node hears what passes
  on their channel. So the peer is told, also when the node has ended the session.
- It is told at its own stub: `execute {method: "disconnect", params: [{peer: <runtime URL>}]}` from
  `domain://msg-node.<domain>/p2p`. Nobody answers.
- An identity ends with its token's time, too, though its session says nothing to the node by then.
- A session that closes itself, or does not come back, is no reason: its runtime says `bye`, or its
  channel outlives a bad line to the node.
- Of what a session has invited the newest are remembered. Older ones are told, too, because the
  node could not tell them later: else who invites many would be hung up on by none.
- What a session has invited goes with it to another worker, and is not kept over a worker's end.
"""

from __future__ import annotations

import asyncio
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
    """The orders of one worker, for its own sessions; their peers may be at any."""

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
        self._sessions = sessions.sessions
        self._ending: dict[int, dict[str, LiveSession]] = {}  # by the second that they end in
        self._ends: dict[str, int] = {}
        sessions.on_identified.append(self.session_identified)
        sessions.on_closed.append(self.session_closed)
        sessions.on_handed_off.append(self.session_handed_off)

    async def watch(self, every: float = 1.0) -> None:
        """Notice identities that end. Runs until cancelled."""
        while True:
            await asyncio.sleep(every)
            self.look()

    def look(self) -> None:
        """Have hung up on those whose identity has ended by now, or who have invited too many."""
        for session in [
            each for each in self._sessions.values() if len(each.invited) > MAX_INVITED
        ]:
            for stub in tuple(session.invited)[:-MAX_INVITED]:
                self._order(session, stub)
        now = self._now()
        for second in [each for each in self._ending if each <= now]:
            for session in self._ending.pop(second).values():
                del self._ends[session.id]
                self._order_identified(session)

    def session_identified(self, session: LiveSession) -> None:
        """A session is bound to a subject from now on, or to none."""
        self.session_handed_off(session.id)
        identity = session.speaker.identity
        if identity is None:
            self._order_identified(session)
        elif identity.expires:
            second = self._ends[session.id] = int(identity.expires) + 1
            self._ending.setdefault(second, {})[session.id] = session

    def session_handed_off(self, session_id: str) -> None:
        """A session is with another worker from now on."""
        second = self._ends.pop(session_id, None)
        if second is not None:
            ending = self._ending[second]
            del ending[session_id]
            if not ending:
                del self._ending[second]

    def session_closed(self, session: Listener, reason: str) -> None:
        """A SessionEnd."""
        self.session_handed_off(session.id)
        if isinstance(session, LiveSession) and session.state is State.TERMINATED:
            for stub in tuple(session.invited):
                self._order(session, stub)

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
