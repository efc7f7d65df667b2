"""Finds the hyperty that takes the messages of a user, for those who write from a network.

Rules
- The registry is asked, as any runtime asks it. Of several hyperties that are live one with a
  resource that fits (chat; for a call audio, video or call) is chosen, else the newest; each must
  be at a session that is logged in as the user, since an entry may name any user at a node where
  nobody must be logged in.
- An answer holds for five seconds; several who ask for one user wait for one answer.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from msgnode.core import addresses
from msgnode.core.messages import Message

from .network import Here, NotSupported

FRESH_SECONDS = 5.0
CHAT_RESOURCES, CALL_RESOURCES = frozenset({"chat"}), frozenset({"audio", "video", "call"})
MAX_ENTRIES = 50
"""Of a user's hyperties so many are looked at."""
MAX_KNOWN = 10_000
"""Foreign users, conversations and look-ups that are remembered; the oldest are forgotten first."""


class Found(NamedTuple):
    """The hyperties of a user that take messages and calls, "" if there are none."""

    hyperty: str
    at: float
    called: str = ""
    is_refused: bool = False  # a policy keeps the gateway from looking


class UserLookups:
    """One instance per network.

    Args:
        here: this node.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, here: Here, clock: Callable[[], float] = time.monotonic) -> None:
        self._here = here
        self._clock = clock
        self._found: OrderedDict[str, Found] = OrderedDict()
        self._looking: dict[str, list[Callable[[Found], None]]] = {}

    def is_looking(self, user: str) -> bool:
        """Whether somebody waits for an answer about a user."""
        return user in self._looking

    def is_refused(self, user: str) -> bool:
        """Whether the last answer about a user was that he must not be looked up."""
        known = self._found.get(user)
        return known is not None and known.is_refused

    def age(self, user: str) -> float:
        """How old the last answer about a user is, in seconds."""
        known = self._found.get(user)
        return self._clock() - known.at if known is not None else float("inf")

    def find(self, user: str, then: Callable[[Found], None], fresh: bool = False) -> None:
        """Find the hyperty of a user; `then` is called with it, perhaps at once.

        Args:
            user: a user URL.
            then: called with what was found.
            fresh: whether an earlier answer does not do.
        """
        known = self._found.get(user)
        if known is not None and not fresh and self.age(user) < FRESH_SECONDS:
            then(known)
            return
        if user in self._looking:
            self._looking[user].append(then)
            return
        self._looking[user] = [then]
        registry = f"domain://registry.{self._here.own}"
        self._here.ask("read", "", registry, {"resource": user}, partial(self._said, user))

    def _said(self, user: str, code: int, body: dict[str, Any]) -> None:
        if code < 200:
            return
        entries = body.get("value") if code == 200 else None
        urls = list(entries)[:MAX_ENTRIES] if isinstance(entries, dict) else []
        self._here.when_known(urls, partial(self._choose, user, entries, code == 403))

    def _choose(self, user: str, entries: Any, is_refused: bool) -> None:
        is_of = partial(self._is_of, user)
        called = preferred(entries, is_of, CALL_RESOURCES)
        found = Found(preferred(entries, is_of), self._clock(), called, is_refused)
        remember(self._found, user, found)
        for each in self._looking.pop(user, ()):
            each(found)

    def _is_of(self, user: str, address: str) -> bool:
        """Whether the session that has an address is logged in as a user."""
        identity = self._here.identity_of(address)
        return identity is not None and identity.is_known_as(user)


def preferred(
    entries: Any, is_of: Callable[[str], bool], wanted: frozenset[str] = CHAT_RESOURCES
) -> str:
    """The URL of the hyperty that takes a user's messages, "" if there is none.

    Args:
        entries: of the registry, by URL.
        is_of: whether the session that has an address is logged in as this user.
        wanted: the resources that fit.
    """
    if not isinstance(entries, dict):
        return ""
    live = [
        (bool(wanted & _named(entry)), str(entry.get("lastModified", "")), url)
        for url, entry in entries.items()
        if isinstance(entry, dict) and entry.get("status") in ("live", "created") and is_of(url)
    ]
    return max(live)[2] if live else ""


def _named(entry: dict[str, Any]) -> set[str]:
    named = entry.get("resources")
    return {each for each in named if isinstance(each, str)} if isinstance(named, list) else set()


def user_asked(message: Message) -> str:
    """The address of the user that a `read` is about: its own, or what a registry is asked for.

    Raises:
        NotSupported: it asks for anything else.
    """
    to, resource = message.recipients[0], message.fields().get("resource")
    if not to.startswith("domain://"):
        return to
    asked, start = str(resource or ""), f"user://{addresses.parse(to).home}/"
    name = asked.removeprefix(start).removeprefix("/hyperty/idp-identifier/")
    if not name or name == asked or "/" in name:
        raise NotSupported("Of a network, users can be looked up, by user://… or their address.")
    return start + name


def entry_of(message: Message, url: str, user: str) -> dict[str, Any]:
    """The answer to a `read`: a user of a network as a hyperty, if he has what is asked for."""
    has = {"resources": ["chat", "audio", "video"], "dataSchemes": ["comm", "connection"]}
    criteria = message.fields().get("criteria")
    for name, values in has.items():
        wanted = criteria.get(name) if isinstance(criteria, dict) else None
        if isinstance(wanted, list) and not all(each in values for each in wanted):
            return {"code": 404, "description": f"{url} has not all of these {name}."}
    entry = {"hypertyID": url, "url": url, "user": user, "userID": user, "status": "live", **has}
    return {"code": 200, "value": {url: entry}}


def remember(known: OrderedDict[Any, Any], key: Any, value: Any, most: int = MAX_KNOWN) -> None:
    """Remember something as the newest, and forget the oldest beyond a number."""
    known[key] = value
    known.move_to_end(key)
    if len(known) > most:
        known.popitem(last=False)
