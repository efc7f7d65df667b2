"""An index of who is logged in now, by user name, user URL and guid."""

from __future__ import annotations

from collections.abc import Iterator
from time import time

from msgnode.bus.ports import Listener
from msgnode.core.identity import Identity


class LoggedInIndex:
    """One instance per worker, with the sessions of all workers. Look-ups take no query."""

    def __init__(self) -> None:
        self._named: dict[str, dict[str, Identity]] = {}  # name -> session id -> identity
        self._of: dict[str, Identity] = {}

    def enter(self, session: Listener) -> None:
        """Note that a session is now bound to its speaker's subject, or to none."""
        self.leave(session.id)
        identity = session.speaker.identity
        if identity is not None:
            self._of[session.id] = identity
            for name in _names(identity):
                self._named.setdefault(name, {})[session.id] = identity

    def leave(self, session_id: str) -> None:
        """Remove a session."""
        identity = self._of.pop(session_id, None)
        for name in _names(identity) if identity is not None else ():
            bound = self._named.get(name, {})
            bound.pop(session_id, None)
            if not bound:
                self._named.pop(name, None)

    def find(self, name: str) -> Identity | None:
        """The subject of a name, if it has a session here that has not expired."""
        bound = self._named.get(name.lower().rpartition("://")[2], {})
        now = time()
        return next((each for each in bound.values() if not 0 < each.expires <= now), None)

    def __len__(self) -> int:
        return len(self._of)


def _names(identity: Identity) -> Iterator[str]:
    """`identity.user_url` and the guid stand without their schemes, which have two spellings."""
    named = (identity.username, identity.user_url, identity.guid)
    yield from {each.lower().rpartition("://")[2] for each in named if each}
