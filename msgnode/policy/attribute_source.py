"""The attribute source of policies: who holds an address, what the registry knows of a user.

Rules
- A policy decision does not block. Registry data is fetched in a thread and cached; the sender of
  the message waits until it is there.
- If it does not come within LONGEST seconds it is given up for FRESH seconds: a condition that
  needs it cannot be evaluated, and the message is refused by default.
- Cached data is used for KEPT seconds, and fetched again in the background once it is FRESH seconds
  old.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any

from msgnode.bus.ports import Listener
from msgnode.bus.table import RoutingTable
from msgnode.core import addresses
from msgnode.core.identity import Identity
from msgnode.core.pending import Pending
from msgnode.storage.database_threads import in_any_thread
from policies.engine.language import CannotEvaluate
from registry import api as registry

log = logging.getLogger(__name__)

FRESH, KEPT, LONGEST = 2.0, 60.0, 3.0
MAX_KEPT = 10_000


class NodeAttributeSource:
    """Attributes from the routing table and the registry. `find` finds the entries of a user."""

    def __init__(self, table: RoutingTable, find: Callable[[str], list[str]] | None = None) -> None:
        self._table = table
        self._find = find or registered_hyperties
        self._kept: dict[str, tuple[float, list[str] | None]] = {}  # None: given up
        self._asked: dict[str, list[Callable[[], None]]] = {}

    def identity_of(self, address: str) -> Identity | None:
        """The verified identity at an address."""
        session = self._session(address)
        return session.speaker.identity if session is not None else None

    def runtime_of(self, address: str) -> str | None:
        """The runtime that holds an address."""
        session = self._session(address)
        return session.runtime_url if session is not None else None

    def entries_of(self, user_url: str) -> list[Any] | None:
        """The URLs of a user's registered hyperties. Raises CannotEvaluate if not known."""
        at, entries = self._kept.get(user_url, (-KEPT, None))
        age = monotonic() - at
        if age > FRESH:
            self._ask(user_url)
        if entries is None or age > KEPT:
            raise CannotEvaluate(f"the registry entries of {user_url} could not be had")
        return entries

    def prepare(self, user_url: str) -> None:
        """Raise Pending if a user's entries must be waited for."""
        at, entries = self._kept.get(user_url, (-KEPT, None))
        if monotonic() - at <= (FRESH if entries is None else KEPT):
            return
        self._ask(user_url)
        raise Pending(f"What the registry knows of {user_url}", self._asked[user_url].append)

    def peer_of(self, address: str) -> str | None:
        """The domain whose node a message to the address goes to, if it leaves this one."""
        table = self._table
        if not table.peers or table.listeners(address) or address in table.learned:
            return None
        if table.at_runtime(address) is not None or table.peer_of(address) is None:
            return None
        return addresses.parse(address).home

    def way_of(self, peer: str) -> str:
        """What the domain of a peer is: `node`, or `legacy` for a network of another protocol."""
        return "legacy" if peer in self._table.legacy else "node"

    def _ask(self, user_url: str) -> None:
        if user_url in self._asked:
            return
        self._asked[user_url] = []
        loop = asyncio.get_running_loop()
        answer = loop.create_task(in_any_thread(self._find, user_url))
        limit = loop.call_later(LONGEST, self._keep, user_url, None)
        answer.add_done_callback(partial(self._answered, user_url, limit))

    def _answered(
        self, user_url: str, limit: asyncio.TimerHandle, answer: asyncio.Future[list[str]]
    ) -> None:
        limit.cancel()
        error = None if answer.cancelled() else answer.exception()
        if answer.cancelled() or error is not None:
            log.warning("The registry did not answer a policy: %s", error)
            self._keep(user_url, None)
        else:
            self._keep(user_url, answer.result())

    def _keep(self, user_url: str, entries: list[str] | None) -> None:
        """Cache an answer, or its absence if nothing better is known."""
        at, known = self._kept.get(user_url, (-KEPT, None))
        if entries is not None or known is None or monotonic() - at > KEPT:
            if user_url not in self._kept and len(self._kept) >= MAX_KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[user_url] = (monotonic(), entries)
        for known_now in self._asked.pop(user_url, ()):
            known_now()

    def _session(self, address: str) -> Listener | None:
        return self._table.owner_of(address) or self._table.at_runtime(address)


def registered_hyperties(user_url: str) -> list[str]:
    """The URLs of a user's registered hyperties. Blocks."""
    found = registry.find(registry.Search.by(registry.Kind.HYPERTY, "user", user_url))
    return [entry.url for entry in found]
