"""The sessions of a worker: performs their state transitions, and the actions of each transition.

The states are in the table SESSION of rules.py.

Rules
- A session that has lost its socket is kept for the grace period, oldest first in `_detached`.
- Every session ends through `close`, which frees what it holds at once, whoever ends it and why.
- A session that moves to another worker keeps its rows; only this worker's memory of it is removed.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgnode.bus.ports import SessionEnd
from msgnode.bus.table import RoutingTable
from msgnode.core import messages
from msgnode.core.digest import digest
from msgnode.core.errors import Forbidden
from msgnode.core.faults import FAULTS
from msgnode.core.identity import Identity, Speaker
from msgnode.core.record import SessionEvent, SessionRecord

from . import budgets
from .bans import BanList
from .budgets import QueueBudget
from .rules import CloseCode, Event, State
from .session import LiveSession, Socket
from .session_factory import SessionSettings, restored_session
from .store import SessionStore

if TYPE_CHECKING:
    from msgnode import models

_EXPIRE_AT_ONCE, _PAUSE = 25, 0.002
_LATE_COMMITS = "changes were committed after they had been refused"


class SessionSteps:
    """Tells listeners, such as the traffic record, of the steps in the life of sessions.

    `listeners` are called on the event loop; they must not block or raise.
    """

    def __init__(self) -> None:
        self.listeners: list[Callable[[SessionRecord], None]] = []
        self.counts: Counter[SessionEvent] = Counter()

    def tell(
        self,
        session: LiveSession,
        event: SessionEvent,
        since: float = 0.0,
        ending: str = "",
        code: int = 0,
    ) -> None:
        """Notify the listeners of a step of a session.

        Args:
            session: the session.
            event: the step.
            since: when the phase that ends now began, in epoch seconds; 0 if none ends.
            ending: how it ended.
            code: the code with which the node closed its socket; 0 if it did not.
        """
        self.counts[event] += 1
        if not self.listeners:
            return
        now = time.time()
        lasted = max(0.0, now - since) if since else 0.0
        resumptions = session.resumptions if event is SessionEvent.ENDED else 0
        record = SessionRecord(
            now, session.id, session.runtime_url, event, ending, code, lasted, resumptions
        )
        for listener in self.listeners:
            listener(record)


class SessionManager:
    """The sessions of this worker, their sockets and their ends."""

    def __init__(
        self,
        settings: SessionSettings,
        table: RoutingTable,
        store: SessionStore,
        raise_alarm: Callable[[str, str, str], None],
    ) -> None:
        self.sessions: dict[str, LiveSession] = {}
        self.on_closed: list[SessionEnd] = []
        self.on_identified: list[Callable[[LiveSession], None]] = []
        self.on_adopted: list[Callable[[LiveSession], None]] = []
        self.on_handed_off: list[Callable[[str], None]] = []
        self.on_detached: list[Callable[[LiveSession], None]] = []
        self.steps = SessionSteps()
        self.bans = BanList()
        self._settings = settings
        self._table = table
        self._store = store
        self._raise_alarm = raise_alarm
        self.queues = QueueBudget(
            settings.queue_bytes_per_source,
            settings.queue_bytes,
            lambda holder, text: raise_alarm("queue-budget", holder, text),
        )
        self._detached: dict[str, LiveSession] = {}  # oldest first
        self._event_ids = itertools.count(1)

    def lost(self, caller: Socket) -> None:
        """Handle the loss of the caller's socket: keep its session for the grace period."""
        session = caller.session
        caller.lose_session()
        if session is None:
            return
        if session.state is State.PROVISIONAL:
            session.step(Event.LOSE)
            return
        has_dropped = session.outbox.has_gap  # which the node did; what a network loses is no alarm
        self.detach(session, Event.LOSE, caller.closed_with)
        self._store.detached(session)
        if has_dropped:
            self._raise_alarm("gap", session.runtime_url, "Messages to a session were lost.")

    def drop(self, session: LiveSession) -> None:
        """Drop the session's dead socket, and handle it as lost."""
        socket = session.socket
        if socket is not None:
            self.lost(socket)
            socket.drop()

    def expire(self, at_most: int) -> bool:
        """End at most so many sessions whose grace period is over; return whether more may be."""
        oldest_kept = time.monotonic() - self._settings.grace
        for session in tuple(islice(self._detached.values(), at_most)):
            if session.detached_at > oldest_kept:
                return False
            del self._detached[session.id]
            with FAULTS.kept_to("session"):
                self.close(session, Event.EXPIRE, "grace period over")
        return bool(self._detached)

    async def expire_in_turns(self) -> None:
        """End all sessions whose grace period is over, and let others speak in between.

        Thousands may expire in one second, for instance after a power cut on the runtimes' side.
        """
        while self.expire(_EXPIRE_AT_ONCE):  # noqa: ASYNC110  (this does not poll: it yields)
            await asyncio.sleep(_PAUSE)

    def end_differing(self, ids: Iterable[str]) -> None:
        """End sessions of which the database has other addresses than they were told.

        That is so if it committed a change after the node had refused it, because it did not answer
        in time (storage/writer.py). The runtime opens a new session and asks again.
        """
        for id_ in ids:
            session = self.sessions.get(id_)
            if session is not None:
                with FAULTS.kept_to("session"):
                    self.end(session, CloseCode.GOING_AWAY, _LATE_COMMITS, _LATE_COMMITS)

    def close(self, session: LiveSession, event: Event, reason: str, code: int = 0) -> None:
        """End a session and free its addresses and subscriptions at once. Idempotent.

        `code` is the close code of its socket, if that ends with the session.
        """
        if session.has_ended:
            return
        self._detached.pop(session.id, None)
        is_known = self.sessions.pop(session.id, None) is not None
        session.step(event)
        session.forget()
        if not is_known:  # it has no runtime URL yet
            return
        self._table.remove_runtime(session)
        self._forget_learned(session)
        if session.socket is not None:
            session.socket.session = None
        session.detach()
        session.outbox.clear()
        for on_closed in self.on_closed:
            with FAULTS.kept_to("session"):
                on_closed(session, reason)
        self._store.closed(session, reason)
        self.steps.tell(session, SessionEvent.ENDED, session.opened_at, str(event), code)

    def end(
        self, session: LiveSession, code: int, reason: str, told: str = "ended by the operator"
    ) -> None:
        """End a session on behalf of the operator or a rule.

        `code` tells the client whether to return; `reason` is kept in the session's row.
        """
        socket = session.socket
        self.close(session, Event.END, reason, code)
        if socket is not None:
            socket.end(code, told)

    def identify(
        self, session: LiveSession, identity: Identity | None, proof: str = ""
    ) -> asyncio.Future[Any] | None:
        """Bind a session to a verified subject, or to none.

        Returns:
            A future that is done with the commit, None if there is nothing to store.

        Raises:
            Forbidden: it is bound to another subject, or the subject is banned.
        """
        speaker = replace(session.speaker, identity=identity)
        if identity is not None and session.speaker.identity is not None:
            if not speaker.is_same_subject(session.speaker):
                raise Forbidden("This session is logged in as somebody else: log out first.")
        elif identity is not None and self.bans.of_session("", speaker, time.time()) is not None:
            raise Forbidden("This subject is banned from this node.")
        session.speaker, session.proof = speaker, proof
        self._charge(session)
        if session.socket is not None:
            session.socket.set_identity(identity, proof)
        if session.state is State.PROVISIONAL:
            return None
        self._table.touch(session)
        for on_identified in self.on_identified:
            on_identified(session)
        return self._store.identified(session)

    def said_who(self, session: LiveSession) -> None:
        """Note that a session without a login has identified itself in a message."""
        if not session.has_said_who:
            session.has_said_who = True
            self._store.identified(session)

    def is_source_banned(self, source: str) -> bool:
        """Whether connections from this network address are banned."""
        return self.bans.of_source(source, time.time()) is not None

    def apply_bans(self, bans: BanList) -> None:
        """Put bans in force: end the sessions that the new ones affect."""
        new, self.bans = bans.beyond(self.bans), bans
        if not new:
            return
        now = time.time()
        for session in tuple(self.sessions.values()):
            with FAULTS.kept_to("session"):
                ban = new.of_session(session.runtime_url, session.speaker, now)
                if ban is not None:
                    self.end(session, CloseCode.REFUSED, f"banned: {ban.reason}")

    def restore(self, rows: Iterable[models.Session]) -> int:
        """Restore sessions from the database at start, all of them without a socket.

        Returns:
            How many were not stopped cleanly, and so may have missed messages.
        """
        with_gap = 0
        for row in rows:
            session = self.restored(row)
            with_gap += session.outbox.has_gap
            self.adopt(session)
            self._table.add_runtime(session)
        return with_gap

    def restored(self, row: models.Session) -> LiveSession:
        """Make a session from a row, in the state arriving and not yet in the routing table."""
        return restored_session(self._settings, row)

    def stop(self) -> asyncio.Future[Any]:
        """Store, at a clean stop, which sessions miss nothing: those with an empty queue."""
        complete = [
            session
            for session in self.sessions.values()
            if not session.outbox.has_gap and not session.outbox.waiting_bytes
        ]
        return self._store.stopped(complete)

    # --- sessions and their sockets ---------------------------------------------------------------

    def open(self, session: LiveSession, socket: Socket) -> None:
        """Begin a new session on this socket; call `stored` after the commit of its row."""
        session.step(Event.OPEN)
        self.sessions[session.id] = session
        self._bind(session, socket)
        for on_identified in self.on_identified:
            on_identified(session)

    def resume(
        self, session: LiveSession, socket: Socket, token: str, speaker: Speaker, proof: str
    ) -> None:
        """Resume a session with this socket, token and speaker.

        Call `stored` after the commit. A socket that it still has is closed.
        """
        before = session.socket
        is_changed = speaker.identity != session.speaker.identity
        session.step(Event.RESUME)
        if before is not None and before is not socket:
            before.lose_session()
            before.end(CloseCode.REPLACED, "resumed on another connection")
            session.detach()
            self.steps.tell(session, SessionEvent.LOST, session.bound_at, code=CloseCode.REPLACED)
        session.token_hash = digest(token)
        session.token = token.encode()
        session.handshake = socket.handshake
        session.speaker, session.proof = speaker, proof
        self._detached.pop(session.id, None)
        self._bind(session, socket)
        for on_identified in self.on_identified if is_changed else ():
            on_identified(session)

    def stored(self, session: LiveSession, socket: Socket) -> None:
        """Let a session's frames flow, its row being on disk; signal a gap if there is one."""
        before = session.state
        session.step(Event.STORED)
        if before is State.OPENING:
            self.steps.tell(session, SessionEvent.OPENED)
        elif before is State.RESUMING:
            session.resumptions += 1
            self.steps.tell(session, SessionEvent.RESUMED)
        session.attach(socket)
        self._signal_gap(session)

    def detach(self, session: LiveSession, event: Event, code: int = 0) -> None:
        """Detach a session from its lost socket, and begin its grace period.

        `code` is the code with which the node closed the socket.
        """
        session.step(event)
        if event is Event.LOSE:
            self.steps.tell(session, SessionEvent.LOST, session.bound_at, code=code)
        session.detach()
        self._forget_learned(session)
        self._table.touch(session)
        self._detached[session.id] = session
        for on_detached in self.on_detached:
            on_detached(session)

    # --- sessions that change their worker --------------------------------------------------------

    def adopt(self, session: LiveSession) -> None:
        """Make an arriving session this worker's, or keep one that was leaving."""
        session.step(Event.ADOPT)
        self.sessions[session.id] = session
        self._detached[session.id] = session
        self._charge(session)
        for told in (*self.on_identified, *self.on_adopted):
            told(session)

    def release(self, session: LiveSession) -> None:
        """Prepare a session to leave: end its socket; its queue goes along. Idempotent."""
        if session.state is State.LEAVING:
            return
        socket = session.socket
        session.step(Event.LEAVE)
        self._detached.pop(session.id, None)
        if socket is not None:
            socket.lose_session()
            socket.end(CloseCode.REPLACED, "resumed on another connection")
            session.detach()
            self.steps.tell(session, SessionEvent.LOST, session.bound_at, code=CloseCode.REPLACED)
            self._forget_learned(session)
            self._table.touch(session)

    def hand_off(self, session_id: str) -> None:
        """Forget a session that is now at another worker; its rows stay as they are."""
        session = self.sessions.pop(session_id, None)
        self._detached.pop(session_id, None)
        if session is not None:
            session.step(Event.MOVE)
            session.outbox.clear()
            session.forget()
        for on_handed_off in self.on_handed_off:
            on_handed_off(session_id)

    def missed(self, session_id: str) -> None:
        """Signal a gap to a session whose frames were lost, now or when it returns."""
        session = self.sessions.get(session_id)
        if session is None:
            return
        session.outbox.has_gap = True
        if session.is_connected and session.socket is not None:
            self._signal_gap(session)

    # --- steps ------------------------------------------------------------------------------------

    def _charge(self, session: LiveSession) -> None:
        """Charge a session's queue to the budgets of its source and its subject."""
        session.outbox.charge_to(self.queues, budgets.holders(session.speaker))

    def _bind(self, session: LiveSession, socket: Socket) -> None:
        session.bound_at = time.time()
        self._charge(session)
        self._table.add_runtime(session)
        socket.session = session
        socket.last_runtime_url = session.runtime_url
        session.socket = socket

    def _signal_gap(self, session: LiveSession) -> None:
        if not session.outbox.has_gap:
            return
        session.outbox.has_gap = False
        status = f"{session.runtime_url}/status"
        number = next(self._event_ids)
        session.deliver(messages.event(self._settings.node_address, status, "gap", number))

    def _forget_learned(self, session: LiveSession) -> None:
        for address in session.learned:
            self._table.forget(address, session)
        session.learned.clear()
