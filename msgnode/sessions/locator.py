"""Has the sessions of a runtime come to the worker that its connection is with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from msgnode.bus.ports import Listener
from msgnode.core.errors import Unavailable
from msgnode.core.pending import Pending

from .manager import SessionManager
from .rules import State
from .session import LiveSession


class SessionLocator:
    """One instance per worker.

    With several workers, `fetch` has a session of another one come here; it returns when that is
    settled, one way or the other.
    """

    def __init__(self, sessions: SessionManager) -> None:
        self.fetch: Callable[[str], Awaitable[None]] | None = None
        self._sessions = sessions
        self._given_up: set[str] = set()
        sessions.on_identified.append(self._has_come)

    def here(self, session: Listener) -> LiveSession:
        """The session, once it is with this worker.

        Raises:
            Pending: it comes from another worker, or leaves for one.
            Unavailable: it cannot be had.
        """
        live = self._sessions.sessions.get(session.id)
        if live is not None and live.state is not State.LEAVING:
            return live
        if self.fetch is None or session.id in self._given_up:
            self._given_up.discard(session.id)
            raise Unavailable("The session is with a part of the node that does not answer.")
        raise Pending("The session", partial(self._fetch, self.fetch, session.id))

    def _fetch(
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
