"""Entries of the domain registry: their fields, their life and their changes. Pure.

    new ──register──► status of the sender ──time, delete, session end──► disconnected ──► dead
                               ▲                                                │            │
                               └─────── keep-alive, update, register ───────────┴────────────┘

Rules
- An entry expires when whole seconds since `modified` exceed `expires`
  (docs/reference/registry.md, section A3), so an entry with 0 lives through its second.
  `settled()` is applied before anything reads or changes an entry.
- `disconnected` and `dead` are unavailable; every other status counts as available.
- A hyperty URL belongs to its user, a data object to the owner of its reporter.
- A change of status is a Change; `is_announced` says whether observers are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from msgnode.core.errors import Forbidden, NotFound

LIVE = "live"
DISCONNECTED = "disconnected"
DEAD = "dead"
STATUSES = ("created", LIVE, DISCONNECTED, DEAD)
"""Those that a registration may have."""
UNAVAILABLE = frozenset({DISCONNECTED, DEAD})


class Kind(StrEnum):
    """The two kinds of entries."""

    HYPERTY = "hyperty"
    OBJECT = "dataobject"


class Cause(StrEnum):
    """Why a status changed."""

    REGISTERED = "registered"
    REFRESHED = "refreshed"
    UPDATED = "updated"
    DELETED = "deleted"
    EXPIRED = "expired"
    SESSION_CLOSED = "session closed"
    OPERATOR = "operator"
    AGED = "aged"


@dataclass(frozen=True, slots=True)
class Entry:
    """A registered hyperty or data object. None is a field that was not given.

    owner     the mark of who registered it (ownership.py), "" if nobody in particular
    ended     since when the entry is unavailable, None while it is available
    is_news   whether it has ended since the feed of ended entries was last polled
    """

    kind: Kind
    url: str
    status: str
    expires: int
    started: datetime
    modified: datetime
    user: str = ""
    runtime: str = ""
    resources: tuple[str, ...] = ()
    data_schemes: tuple[str, ...] = ()
    descriptor: str | None = None
    guid: str | None = None
    name: str | None = None
    schema: str | None = None
    reporter: str | None = None
    p2p_requester: str | None = None
    p2p_handler: str | None = None
    owner: str = ""
    ended: datetime | None = None
    is_news: bool = False

    @property
    def is_available(self) -> bool:
        """Whether its status is an available one; its age does not count here."""
        return self.status not in UNAVAILABLE

    @property
    def expires_at(self) -> datetime | None:
        """The moment at which the entry expires; None if it is not available."""
        return self.modified + timedelta(seconds=self.expires + 1) if self.is_available else None


@dataclass(frozen=True, slots=True)
class Change:
    """A change of an entry's status; `before` is "" for an entry that is new."""

    kind: Kind
    url: str
    before: str
    after: str
    cause: Cause
    at: datetime

    @property
    def is_announced(self) -> bool:
        """Whether observers are told: of standard statuses, and not of a first registration."""
        return self.after in (LIVE, DISCONNECTED) and self.before not in ("", self.after)


Step = tuple[Entry, tuple[Change, ...]]
"""An entry after a change, and the changes of its status on the way, oldest first."""


def settled(entry: Entry, now: datetime) -> Step:
    """The entry as it is now: disconnected if it has expired."""
    due = entry.expires_at
    if due is None or now < due:
        return entry, ()
    return disconnected(entry, now, Cause.EXPIRED)


def disconnected(entry: Entry, now: datetime, cause: Cause) -> Step:
    """The entry after its end. A disconnected one stays as it is."""
    if entry.status == DISCONNECTED:
        return entry, ()
    ended = replace(entry, status=DISCONNECTED, ended=now, is_news=True)
    return ended, (Change(entry.kind, entry.url, entry.status, DISCONNECTED, cause, now),)


def registered(
    kind: Kind,
    url: str,
    user: str,
    facts: Mapping[str, Any],
    before: Entry | None,
    now: datetime,
    owners: Mapping[str, str],
    owner: str = "",
) -> Step:
    """A new entry, or the full replacement of one by its owner: fields not given become absent.

    Raises NotFound for another user's hyperty (docs/reference/registry.md, section A3), Forbidden
    for another's object.
    """
    if before is not None:
        if kind is Kind.HYPERTY and before.user != user:
            raise NotFound("The hyperty URL is registered by another user.")
        _check_reporter(before, facts, owners)
    started = before.started if before else now
    entry = Entry(
        kind=kind, url=url, user=user, owner=owner, started=started, modified=now, **facts
    )
    return _with_status(entry, before.status if before else "", now, Cause.REGISTERED)


def kept_alive(before: Entry, now: datetime) -> Step:
    """The entry after a keep-alive: live, whatever it was."""
    return _with_status(
        replace(before, modified=now, status=LIVE), before.status, now, Cause.REFRESHED
    )


def updated(
    before: Entry, facts: Mapping[str, Any], now: datetime, owners: Mapping[str, str]
) -> Step:
    """The entry with some fields replaced; none can be removed (section A3)."""
    _check_reporter(before, facts, owners)
    return _with_status(replace(before, modified=now, **facts), before.status, now, Cause.UPDATED)


def matches(entry: Entry, resources: Iterable[str], data_schemes: Iterable[str]) -> bool:
    """Whether the entry has all the resources and all the data schemes: exact, case-sensitive."""
    return set(resources) <= set(entry.resources) and set(data_schemes) <= set(entry.data_schemes)


def outcome(entries: Iterable[Entry]) -> int:
    """The code of a search: 404 for nothing, 408 if all hyperties found are unavailable, else 200.

    Data objects are found whatever their status (section A3).
    """
    found = list(entries)
    if not found:
        return 404
    reachable = any(entry.is_available or entry.kind is Kind.OBJECT for entry in found)
    return 200 if reachable else 408


def _with_status(entry: Entry, before: str, now: datetime, cause: Cause) -> Step:
    """The entry with `ended` set by its status, and the change, if any."""
    ended = None
    if not entry.is_available:
        ended = (entry.ended if before == entry.status else None) or now
    entry = replace(entry, ended=ended, is_news=False)
    if before == entry.status:
        return entry, ()
    return entry, (Change(entry.kind, entry.url, before, entry.status, cause, now),)


def _check_reporter(before: Entry, facts: Mapping[str, Any], owners: Mapping[str, str]) -> None:
    """A data object may change to a reporter of the same owner only."""
    old, new = before.reporter, facts.get("reporter")
    if before.kind is Kind.HYPERTY or new is None or new == old:
        return
    if old is None or owners.get(old, "") == "" or owners.get(old) != owners.get(new):
        raise Forbidden("The data object is registered by another reporter.")
