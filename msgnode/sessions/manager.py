"""The sessions of a worker: takes each from state to state, and does what belongs to the step.

The states are those of the table SESSION in rules.py.

Rules
- A session that has lost its socket is kept for the grace period, oldest first in `_detached`.
- `close` is the one end of a session: what it holds is free at once, whoever ends it and why.
- A session that changes its worker keeps its rows; only this worker's memory of it goes.
"""

from __future__ import annotations

import asyncio
import itertools
import time
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
from msgnode.core.record import SessionEvent

from . import budgets
from .bans import BanList
from .budgets import QueueBudget
from .rules import CloseCode, Event, State
from .session import LiveSession, Socket
from .session_factory import SessionSettings, restored_session
from .steps import SessionSteps
from .store import SessionStore

if TYPE_CHECKING:
    from msgnode import models


class SessionManager:
    """The sessions of this worker: which there are, their sockets, and how they end."""

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
        """The caller's socket is gone: its session is kept for the grace period."""
        session = caller.session
        caller.session = None
        if session is None:
            return
        if session.state is State.PROVISIONAL:
            session.step(Event.LOSE)
            return
        self.detach(session, Event.LOSE, caller.closed_with)
        self._store.detached(session)
        if session.outbox.has_gap:
            self._raise_alarm("gap", session.runtime_url, "Messages to a session were lost.")

    def drop(self, session: LiveSession) -> None:
        """Nobody answers at the session's socket: it is given up as one that is lost."""
        socket = session.socket
        if socket is not None:
            self.lost(socket)
            socket.drop()

    def expire(self, at_most: int) -> bool:
        """End sessions whose grace period is over, so many; whether there may be more of them."""
        oldest_kept = time.monotonic() - self._settings.grace
        for session in tuple(islice(self._detached.values(), at_most)):
            if session.detached_at > oldest_kept:
                return False
            del self._detached[session.id]
            with FAULTS.kept_to("session"):
                self.close(session, Event.EXPIRE, "grace period over")
        return bool(self._detached)

    def close(self, session: LiveSession, event: Event, reason: str, code: int = 0) -> None:
        """End a session: its addresses and subscriptions are free at once. Idempotent.

        `code` is that of the socket's end, if the session ends with it.
        """
        if session.has_ended:
            return
        self._detached.pop(session.id, None)
        is_known = self.sessions.pop(session.id, None) is not None
        session.step(event)
        if not is_known:  # it had no runtime URL yet
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
        """The operator ends a session, or a rule does.

        The code tells its socket whether to return; `reason` stays with the row.
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
        """A session that nobody has logged in at has said who it is in a message."""
        if not session.has_said_who:
            session.has_said_who = True
            self._store.identified(session)

    def is_source_banned(self, source: str) -> bool:
        """Whether connections from this network address are kept out."""
        return self.bans.of_source(source, time.time()) is not None

    def apply_bans(self, bans: BanList) -> None:
        """These bans are in force from now on: end the sessions that the new ones meet."""
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
        """Take over the sessions of the database at start, where each has lost its socket.

        Returns:
            How many did not end in a clean stop, and so may have missed something.
        """
        with_gap = 0
        for row in rows:
            session = self.restored(row)
            with_gap += session.outbox.has_gap
            self.adopt(session)
            self._table.add_runtime(session)
        return with_gap

    def restored(self, row: models.Session) -> LiveSession:
        """The session of a row, arriving, not yet known to anybody."""
        return restored_session(self._settings, row)

    def stop(self) -> asyncio.Future[Any]:
        """Write down, at a clean stop, which sessions miss nothing: those without a queue."""
        complete = [
            session
            for session in self.sessions.values()
            if not session.outbox.has_gap and not session.outbox.waiting_bytes
        ]
        return self._store.stopped(complete)

    # --- sessions and their sockets ---------------------------------------------------------------

    def open(self, session: LiveSession, socket: Socket) -> None:
        """A new session begins, on this socket; it is `stored` after the commit of its row."""
        session.step(Event.OPEN)
        self.sessions[session.id] = session
        self._bind(session, socket)
        for on_identified in self.on_identified:
            on_identified(session)

    def resume(
        self, session: LiveSession, socket: Socket, token: str, speaker: Speaker, proof: str
    ) -> None:
        """A session goes on with this socket, token and speaker.

        It is `stored` after the commit; a socket it has is closed.
        """
        before = session.socket
        is_changed = speaker.identity != session.speaker.identity
        session.step(Event.RESUME)
        if before is not None and before is not socket:
            before.session = None
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
        """The session's row is on disk: let its frames flow, and say if some are missing."""
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
        """The session has no socket any more; its grace period begins.

        `code` is what the node closed the socket with.
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
        """A session that arrives is this worker's from now on, or one that was to leave stays."""
        session.step(Event.ADOPT)
        self.sessions[session.id] = session
        self._detached[session.id] = session
        self._charge(session)
        for told in (*self.on_identified, *self.on_adopted):
            told(session)

    def release(self, session: LiveSession) -> None:
        """A session is to leave: its socket is ended, its queue goes along. Idempotent."""
        if session.state is State.LEAVING:
            return
        socket = session.socket
        session.step(Event.LEAVE)
        self._detached.pop(session.id, None)
        if socket is not None:
            socket.session = None
            socket.end(CloseCode.REPLACED, "resumed on another connection")
            session.detach()
            self.steps.tell(session, SessionEvent.LOST, session.bound_at, code=CloseCode.REPLACED)
            self._forget_learned(session)
            self._table.touch(session)

    def hand_off(self, session_id: str) -> None:
        """A session is with another worker from now on; its rows stay as they are."""
        session = self.sessions.pop(session_id, None)
        self._detached.pop(session_id, None)
        if session is not None:
            session.step(Event.MOVE)
            session.outbox.clear()
        for on_handed_off in self.on_handed_off:
            on_handed_off(session_id)

    def missed(self, session_id: str) -> None:
        """Frames for a session were lost on their way: tell it now, or when it comes back."""
        session = self.sessions.get(session_id)
        if session is None:
            return
        session.outbox.has_gap = True
        if session.is_connected and session.socket is not None:
            self._signal_gap(session)

    # --- steps ------------------------------------------------------------------------------------

    def _charge(self, session: LiveSession) -> None:
        """What waits for a session counts towards the budgets of its source and its subject."""
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
