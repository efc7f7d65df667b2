"""Finds the sessions of a runtime at any worker, and moves them to this one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from functools import partial

from msgnode.bus.holders import NO_OTHERS, Holders
from msgnode.bus.ports import Listener
from msgnode.bus.table import RoutingTable
from msgnode.core.errors import Unavailable
from msgnode.core.pending import Pending

from . import rules
from .manager import SessionManager
from .rules import State
from .session import LiveSession


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
            Unavailable: it may be at a worker that does not answer.
        """
        number = object()
        while (session := self.find(runtime_url, token)) is None:
            try:
                self.ask_others(runtime_url, number)
                return self.find(runtime_url, token)
            except Pending as fact:
                known = asyncio.Event()
                fact.when_known(known.set)
                await known.wait()
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
        def done(_: asyncio.Future[None]) -> None:
            live = self._sessions.sessions.get(id_)
            if live is None or live.state is State.LEAVING:
                self._given_up.add(id_)
            known()

        asyncio.ensure_future(fetch(id_)).add_done_callback(done)

    def _has_come(self, session: LiveSession) -> None:
        self._given_up.discard(session.id)
