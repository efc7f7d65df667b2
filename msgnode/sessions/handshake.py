"""The component mn:/session: opens, resumes and closes sessions, in the format of each handshake.

The answer is given after the session's row is committed; then its addresses and subscriptions
survive the process. At a resumption the answer comes first, then queued frames, then new ones.
What a client gets is decided in admission.py. The sessions of a runtime may be at other workers:
SessionLocator asks for them (workers/homes.py) and has them moved here (workers/handover.py).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from msgnode.bus.holders import NO_OTHERS, Holders
from msgnode.bus.ports import CLOSED_BY_RUNTIME, ComponentInfo, Listener
from msgnode.bus.table import RoutingTable
from msgnode.core import messages
from msgnode.core.errors import (
    BadMessage,
    Conflict,
    Forbidden,
    NodeError,
    NotIdentified,
    Unavailable,
)
from msgnode.core.identity import Speaker
from msgnode.core.messages import Message
from msgnode.core.pending import Pending
from msgnode.core.random_ids import random_uuid

from . import rules
from .admission import AskAlive, Fetch, ForNew, Known, Open, Refuse, Resume, asked, new
from .connection import Carry, Connection, ConnectionSettings
from .connection_limits import ConnectionLimits
from .liveness import LivenessChecks
from .manager import SessionManager
from .outbox import Link
from .rivals import Rivals
from .rules import CloseCode, Event, State
from .session import LiveSession
from .session_factory import SessionSettings, new_session
from .store import SessionStore

log = logging.getLogger(__name__)

ADDRESS = "mn:/session"
NOT_STORED = "The session could not be stored, or another came at that moment: try again."

Answer = Callable[[dict[str, Any]], None]
"""Sends the body of an answer to the caller, in the format of its handshake."""


class RuntimeChecks(NamedTuple):
    """What raises to refuse a session, whatever sessions there are.

    Attributes:
        authorize: by runtime URL, speaker, proof, and whether it is new.
        visitor: for runtimes of other domains, by runtime URL, speaker, and whether it is new.
    """

    authorize: Callable[[str, Speaker, str, bool], None]
    visitor: Callable[[str, Speaker, bool], None] = lambda url, who, is_new: None


class SessionHandshake:
    """Carries out what admission.py decides. Implements the bus's SessionHandler."""

    name = "session"

    def __init__(
        self,
        settings: SessionSettings,
        sessions: SessionManager,
        store: SessionStore,
        known: Known,
        locator: SessionLocator,
        liveness: LivenessChecks,
        rivals: Rivals,
        checks: RuntimeChecks,
    ) -> None:
        self.info = ComponentInfo(self.name, "component", ADDRESS)
        self._settings = settings
        self._sessions = sessions
        self._store = store
        self._known = known
        self._liveness = liveness
        self._rivals = rivals
        self._checks = checks
        self.locator = locator

    # --- session frames ---------------------------------------------------------------------------

    def handle(self, message: Message, caller: Connection) -> None:
        """Process a session frame (docs/reference/messages.md, section 2.2).

        Raises:
            NodeError: it is refused; the pipeline answers.
        """
        try:
            match message.type:
                case "open":
                    self._open(message, caller)
                case "re-open":
                    self._reopen(message, caller)
                case "close":
                    self._close_by(message, caller)
                case "response":
                    pass
                case _:
                    raise BadMessage(f"{ADDRESS} takes open, re-open and close.")
        except NodeError as error:
            self.info.failed += 1
            self.info.last_error = error.description
            raise
        self.info.answered += 1

    def _open(self, message: Message, caller: Connection) -> None:
        own = caller.session
        runtime_url = message.sender.rstrip("/") or (
            own.runtime_url if own else caller.last_runtime_url
        )
        if own is not None:
            if not runtime_url or own.runtime_url != runtime_url:
                raise Conflict("This connection already has a session: close it first.")
            self._resume(
                own, caller, rules.new_token(), self._reply_to(message, caller), fresh=True
            )
        elif not runtime_url:
            self._open_provisional(message, caller)
        else:
            self.enter(runtime_url, caller, self._reply_to(message, caller))

    def enter(self, runtime_url: str, caller: Connection, answer: Answer | None = None) -> None:
        """Give the caller a session of this runtime, resumed if the settings allow it, else new.

        `answer` gets the body of the answer after the commit.
        """
        runtime_url = runtime_url.rstrip("/")  # else it would count as another runtime
        _check_form(runtime_url)
        admission = asked(runtime_url, caller, self._known)
        if isinstance(admission, Refuse) and admission.is_final:
            raise admission.error
        if not isinstance(admission, Resume):  # another worker may have one
            self.locator.ask_others(runtime_url, caller.number)
            admission = asked(runtime_url, caller, self._known)
        token = rules.new_token()
        if isinstance(admission, Resume | Fetch):
            session = self.locator.here(admission.session)
            self._resume(session, caller, token, answer, fresh=True)
        else:
            self._open_new(admission, runtime_url, caller, token, answer)

    def _open_new(
        self,
        admission: ForNew,
        runtime_url: str,
        caller: Connection,
        token: str,
        answer: Answer | None,
    ) -> None:
        if caller.session is not None:
            raise Conflict("This connection already has a session: close it first.")
        self._make_way(admission, runtime_url, caller)
        session = self._new(runtime_url, token, caller)
        self._begin(session, caller, {"code": 200, "runtimeToken": token}, answer)

    def _make_way(self, admission: ForNew, runtime_url: str, caller: Connection) -> None:
        """Check that the caller may have a session of this runtime, and make way for it.

        Raises:
            NodeError: it may not.
            Pending: that is not known yet.
        """
        self._check_bans(runtime_url, caller)
        self._checks.visitor(runtime_url, caller.speaker, True)
        self._checks.authorize(runtime_url, caller.speaker, caller.proof, True)
        match admission:
            case Refuse(error):
                caller.checked.clear()
                raise error
            case AskAlive(sessions):
                raise self._liveness.before(sessions, caller.checked)
            case Open(ends) if ends is not None:
                here = self.locator.here(ends)
                self._sessions.close(here, Event.END, "made room for a newer session")

    def _begin(
        self, session: LiveSession, caller: Connection, body: dict[str, Any], answer: Answer | None
    ) -> None:
        """Begin a new session; it ends if its row cannot be stored."""
        self._sessions.open(session, caller)
        self._rivals.begins(session)

        def give_up() -> None:
            socket = session.socket
            self._sessions.close(session, Event.OPEN_FAILED, "could not be stored")
            if socket is not None and socket is not caller:
                socket.end(CloseCode.GOING_AWAY, NOT_STORED)

        self._answer_when(self._store.opened(session), session, caller, body, answer, give_up)

    def _open_provisional(self, message: Message, caller: Connection) -> None:
        """Handle `open` without `from`: the first message's `via` will name the runtime."""
        self._check_bans("", caller)
        token = rules.new_token()
        caller.session = self._new("", token, caller)
        self._reply_to(message, caller)({"code": 200, "runtimeToken": token})

    def bind(self, session: LiveSession, message: Message, caller: Connection) -> None:
        """Name the runtime of a provisional session from `via` = `<runtime URL>/<token>`."""
        via = message.fields().get("via")
        runtime_url, token = rules.session_url(via) if isinstance(via, str) else ("", "")
        if not token or not rules.opens(token, session.token_hash):
            raise NotIdentified(
                "The session has no runtime yet: give `from` in `open`, or its URL in `via`."
            )
        _check_form(runtime_url)
        self.locator.ask_others(runtime_url, caller.number)
        self._make_way(new(runtime_url, caller, self._known), runtime_url, caller)
        session.runtime_url = runtime_url
        session.speaker = caller.speaker_in(session.id, runtime_url)
        session.proof = caller.proof
        self._begin(session, caller, {}, None)
        session.attach(caller)  # its `open` has already been answered

    def _reopen(self, message: Message, caller: Connection) -> None:
        runtime_url, token = rules.session_url(message.sender)
        if not message.sender or not token:
            self._open(message, caller)
            return
        answer = self._reply_to(message, caller)
        session = self.locator.find(runtime_url, token)
        if session is None:
            # Pending is raised while the others are asked: then this frame comes here once more.
            self.locator.ask_others(runtime_url, caller.number)
            session = self.locator.find(runtime_url, token)
        if session is not None:
            self._resume(self.locator.here(session), caller, token, answer, fresh=False)
        else:
            # An unknown or expired token. Stubs of the field get stuck on an error, so this one
            # gets a fresh token and an empty session; nothing is resumed.
            _check_form(runtime_url)
            admission = new(runtime_url, caller, self._known)
            self._open_new(admission, runtime_url, caller, rules.new_token(), answer)

    def _close_by(self, message: Message, caller: Connection) -> None:
        session = caller.session
        token = rules.session_url(message.sender).token
        if session is not None and not session.is_named_by(message.sender, token):
            raise Forbidden("The session URL in `from` is not this connection's.")
        self._reply_to(message, caller)({"code": 200})
        self.leave(caller)

    def leave(self, caller: Connection) -> None:
        """Close the session at its runtime's request: free what it holds and close its socket."""
        if caller.session is not None:
            session = caller.session
            self._sessions.close(session, Event.CLOSE, CLOSED_BY_RUNTIME, CloseCode.NORMAL)
            caller.session = None
        caller.end(CloseCode.NORMAL, "closed")

    def _check_bans(self, runtime_url: str, caller: Connection) -> None:
        """Raise Forbidden for a banned client; its socket is closed after the answer."""
        ban = self._sessions.bans.of_session(runtime_url, caller.speaker, time.time())
        if ban is not None:
            asyncio.get_running_loop().call_soon(caller.banned)
            raise Forbidden(f"{runtime_url or 'This runtime'} is banned from this node.")

    # --- steps ------------------------------------------------------------------------------------

    def _new(self, runtime_url: str, token: str, caller: Connection) -> LiveSession:
        speaker = caller.speaker_in(random_uuid().replace("-", ""), runtime_url)
        return new_session(self._settings, token, caller.handshake, speaker, caller.proof)

    def _resume(
        self,
        session: LiveSession,
        caller: Connection,
        token: str,
        answer: Answer | None,
        *,
        fresh: bool,
    ) -> None:
        """Bind a session to the caller; a fresh token invalidates the old one."""
        if caller.session is not None and caller.session is not session:
            raise Conflict("This connection already has a session: close it first.")
        self._check_bans(session.runtime_url, caller)
        self._checks.visitor(session.runtime_url, caller.speaker, False)
        if session.speaker.identity is None:
            self._checks.authorize(session.runtime_url, caller.speaker, caller.proof, False)
        speaker = caller.speaker_in(session.id, session.runtime_url)
        bound = session.speaker.identity
        if bound is not None and speaker.identity is None:
            speaker, caller.proof = replace(speaker, identity=bound), session.proof
        elif bound is not None and not speaker.is_same_subject(session.speaker):
            raise Forbidden("The session is bound to another subject.")
        old_hash = session.token_hash
        self._sessions.resume(session, caller, token, speaker, caller.proof)
        new_hash = session.token_hash

        def give_up() -> None:
            if session.token_hash == new_hash:  # else it has been resumed again since
                session.token_hash = old_hash
            if session.socket is caller:
                self._sessions.detach(session, Event.RESUME_FAILED)

        body: dict[str, Any] = {"code": 200, "runtimeToken": token} if fresh else {"code": 200}
        committed = self._store.resumed(session)
        self._answer_when(committed, session, caller, body, answer, give_up)

    def _answer_when(
        self,
        committed: asyncio.Future[Any],
        session: LiveSession,
        caller: Connection,
        body: dict[str, Any],
        answer: Answer | None,
        give_up: Callable[[], None],
    ) -> None:
        """Answer after the commit, then let the session's frames flow.

        If the commit fails, or the session gives way to another one, nothing is acknowledged, and
        the stub may try again.
        """
        caller.answer_pending(+1)

        def finish(may_stay: bool) -> None:
            caller.answer_pending(-1)
            is_waiting = session.socket is caller
            if committed.cancelled() or session.has_ended:
                return
            if may_stay:
                if is_waiting:
                    if answer is not None:
                        answer(body)
                    self._sessions.stored(session, caller)
                return
            give_up()
            if not is_waiting:
                return
            caller.session = None
            if answer is not None:
                answer(messages.error_body(Unavailable(NOT_STORED)))
            else:
                caller.end(CloseCode.GOING_AWAY, NOT_STORED)

        def settle(done: asyncio.Future[Any]) -> None:
            if done.cancelled() or done.exception() is not None:
                finish(False)
            else:
                self._rivals.when_decided(session, finish)

        committed.add_done_callback(settle)

    def _reply_to(self, message: Message, caller: Connection) -> Answer:
        """An Answer that responds to `message`, ahead of the session's outbox."""

        def reply(body: dict[str, Any]) -> None:
            to = message.sender or caller.last_runtime_url
            caller.link.write(messages.response(message.id, ADDRESS, to, body))

        return reply


def _check_form(runtime_url: str) -> None:
    if why := rules.runtime_url_fault(runtime_url):
        raise BadMessage(f"The runtime URL {why}.")


Made = TypeVar("Made", bound=Connection)


@dataclass(frozen=True, slots=True)
class ConnectionParts:
    """What every connection of a worker is made with.

    Attributes:
        carry: the pipeline's, which takes a frame and the connection.
        sessions: the sessions of the worker.
        handshake: opens them.
        sockets: counts connections, and limits them.
        settings: the limits of each.
    """

    carry: Carry
    sessions: SessionManager
    handshake: SessionHandshake
    sockets: ConnectionLimits
    settings: ConnectionSettings

    def connection(self, kind: Callable[..., Made], link: Link, source: str) -> Made:
        """A connection of this kind, not counted yet."""
        return kind(link, source, self.sessions, self.carry, self.settings)


# --- sessions at other workers --------------------------------------------------------------------
class SessionLocator:
    """One instance per worker.

    With several workers, `fetch` requests a session from another worker, and returns when it has
    come or was refused; `holders` finds out which worker has which session.
    """

    def __init__(
        self,
        sessions: SessionManager,
        table: RoutingTable,
        holders: Holders = NO_OTHERS,
        fetch: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self._holders = holders
        self._fetch = fetch
        self._sessions = sessions
        self._table = table
        self._given_up: set[str] = set()
        sessions.on_identified.append(self._has_come)

    def find(self, runtime_url: str, token: str) -> Listener | None:
        """The session of a runtime with this token, if it is known here."""
        for session in self._table.runtimes.get(runtime_url, ()):
            if rules.opens(token, session.token_hash):
                return session
        return None

    def ask_others(self, runtime_url: str, number: Hashable) -> None:
        """Ensure that the sessions of a runtime at other workers are known here.

        Args:
            runtime_url: the runtime's URL.
            number: identifies the caller, which calls again with the same number.

        Raises:
            Pending: the query is running.
            Unavailable: a worker that has one does not answer.
        """
        self._holders.find_runtime((number, runtime_url), runtime_url)

    async def locate(self, runtime_url: str, token: str) -> Listener | None:
        """The session with a token, at any worker; None if there is none.

        Raises:
            Unavailable: it may be at a worker that does not answer or cannot be found out.
        """
        number = object()
        while (session := self.find(runtime_url, token)) is None:
            try:
                self.ask_others(runtime_url, number)
            except Pending as fact:
                known = asyncio.Event()
                fact.when_known(known.set)
                await known.wait()
            else:
                session = self.find(runtime_url, token)
                if session is None and not self._holders.is_runtime_known(runtime_url):
                    raise Unavailable("Where the session is cannot be found out just now.")
                break
        return session

    def here(self, session: Listener) -> LiveSession:
        """The session as one of this worker.

        Raises:
            Pending: it is moving from or to another worker.
            Unavailable: it cannot be moved here.
        """
        live = self._sessions.sessions.get(session.id)
        if live is not None and live.state is not State.LEAVING:
            return live
        if self._fetch is None or session.id in self._given_up:
            self._given_up.discard(session.id)
            raise Unavailable("The worker that has the session does not answer.")
        raise Pending("The session", partial(self._bring, self._fetch, session.id))

    def _bring(
        self, fetch: Callable[[str], Awaitable[None]], id_: str, known: Callable[[], None]
    ) -> None:
        def done(fetched: asyncio.Future[None]) -> None:
            if not fetched.cancelled() and (error := fetched.exception()) is not None:
                log.warning("A session could not be brought here: %s", error)
            live = self._sessions.sessions.get(id_)
            if live is None or live.state is State.LEAVING:
                self._given_up.add(id_)
            known()

        asyncio.ensure_future(fetch(id_)).add_done_callback(done)

    def _has_come(self, session: LiveSession) -> None:
        self._given_up.discard(session.id)
