"""The Python interface of the registry, for every other part of the node.

Synchronous; for any thread and any process (worker, Celery, shell), but not for an event loop.
Bodies and records have the wire format of docs/reference/registry.md; a refusal is a NodeError.

    register refresh update disconnect     one change, committed when the call returns; `condition`
                                           checks the entry as it was before,
                                           `by` is the client (None: the node itself)
    apply                                  many changes in one transaction
    get find find_each by_urls             entries as they are now
    runtimes_gone take_news statistics     the end of sessions, the feed of ended entries, figures
    purge                                  mark and delete what ended long ago
    on_change                              subscribe to announced changes, in their transaction
    operations                             callbacks for operators' actions, in their transaction
    person_export person_erase             all rows about a person, by user ids and GUIDs
    named_by_subjects remove               hyperties of logged-in subjects; delete some for good
    global_get global_put global_digest    signed records of the global registry; whether one that
    global_proved                          is kept elsewhere is that of a GUID
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from django.db import InterfaceError, OperationalError, connection
from django.db.models import Model

from msgnode.core import database_errors
from msgnode.core.errors import NodeError
from registry.global_registry.signed import digest as global_digest
from registry.global_registry.signed import proved as global_proved
from registry.global_registry.store import get as global_get
from registry.global_registry.store import put as global_put

from . import data_subjects, lifecycle, records, searches, store
from .commands import Command, Disconnect, Done, KeepAlive, Register, Search, Update
from .data_subjects import Registered, named_by_subjects
from .entries import UNAVAILABLE, Cause, Change, Entry, Kind, outcome
from .models import DataObject, Hyperty
from .ownership import PUBLIC, Claimant, owns, session_mark, subject_mark
from .records import key, record
from .store import MAX_BATCH, Condition, apply

__all__ = [
    "COSTLY", "MAX_BATCH", "PUBLIC", "TOO_MANY_COSTLY", "UNAVAILABLE", "Cause", "Change",
    "Claimant", "Command", "Condition", "Disconnect", "Done", "Entry", "KeepAlive", "Kind",
    "Register", "Registered", "Search", "Update", "apply", "by_urls",
    "costly_records_per_minute", "disconnect", "find", "find_each", "get", "global_digest",
    "global_get", "global_proved", "global_put", "key", "named_by_subjects", "on_change",
    "operations",
    "outcome", "owners_gone", "owns", "person_erase", "person_export", "purge", "record",
    "refresh", "register", "registration", "remove", "runtimes_gone", "session_mark",
    "statistics", "subject_mark", "take_news", "update", "update_of",
]  # fmt: skip

GLOBAL_WRITES_PER_MINUTE = 600
"""Records of one source address. Each is proved, which takes time, before it is stored."""
COSTLY = 20
"""One in so many records of a source may fail, or be new with a GUID of the older variant."""
TOO_MANY_COSTLY = "Too many records that failed, or are new with a GUID of the older variant."

by_urls = searches.by_urls
find = searches.find
find_each = searches.find_each
get = searches.get
owners_gone = lifecycle.owners_gone
take_news = lifecycle.take_news
person_export = data_subjects.export
person_erase = data_subjects.erase

operations: list[Callable[[str, str, Model], None]] = []
"""Called with each row that an operator disconnects or purges: who, what, the row."""


def registration(
    kind: Kind, url: str, body: object, user: str = "", by: Claimant | None = None
) -> Register:
    """The command for a registration, from its wire format. Raises BadMessage."""
    facts = records.registration(kind, body, store.expires_max())
    url = records.key(url, "URL")
    user = records.key(user, "user id") if kind is Kind.HYPERTY else ""
    return Register(kind, url, facts, user, by)


def update_of(kind: Kind, url: str, body: object, by: Claimant | None = None) -> Update:
    """The command for a partial update, from its wire format. Raises BadMessage."""
    return Update(kind, url, records.patch(kind, body, store.expires_max()), by)


def carry_out(command: Command, condition: Condition | None = None) -> Done:
    """Execute one command, committed when the call returns. Raises NodeError if it is refused."""
    try:
        result = apply([command], condition)[0]
    except (OperationalError, InterfaceError) as error:
        if connection.in_atomic_block:
            raise
        raise database_errors.refusal_for(error) from error
    if isinstance(result, NodeError):
        raise result
    return result


def register(
    kind: Kind,
    url: str,
    body: object,
    user: str = "",
    condition: Condition | None = None,
    by: Claimant | None = None,
) -> Done:
    """Register a hyperty or data object, or replace it as its owner."""
    return carry_out(registration(kind, url, body, user, by), condition)


def refresh(
    kind: Kind, url: str, condition: Condition | None = None, by: Claimant | None = None
) -> Done:
    """Keep an entry alive: it is live from now."""
    return carry_out(KeepAlive(kind, url, by), condition)


def update(
    kind: Kind,
    url: str,
    body: object,
    condition: Condition | None = None,
    by: Claimant | None = None,
) -> Done:
    """Replace some fields of an entry."""
    return carry_out(update_of(kind, url, body, by), condition)


def disconnect(
    kind: Kind,
    url: str,
    user: str | None = None,
    condition: Condition | None = None,
    by: Claimant | None = None,
) -> Done:
    """Disconnect an entry; with `user`, only if it is that user's."""
    return carry_out(Disconnect(kind, url, user, by=by), condition)


def runtimes_gone(runtime_urls: Sequence[str]) -> int:
    """Disconnect all entries of these runtimes; return their number."""
    total = 0
    while done := lifecycle.runtimes_gone(runtime_urls):
        total += done
    return total


def purge(now: datetime) -> int:
    """Mark entries as dead that ended long ago, and delete old dead ones.

    Args:
        now: the time by which age is measured.

    Returns:
        The number of entries.
    """
    aged = lifecycle.repeat(lambda: lifecycle.age(now))
    return aged + lifecycle.repeat(lambda: lifecycle.purge(now))


def remove(found: Sequence[Registered]) -> int:
    """Delete hyperties for good, after their observers were told; return their number."""
    ids = [each.pk for each in found]
    number = 0
    for at in range(0, len(ids), MAX_BATCH):
        lifecycle.disconnect_rows(Kind.HYPERTY, ids[at : at + MAX_BATCH])
        number += lifecycle.delete_rows(Hyperty, ids[at : at + MAX_BATCH])
    return number


def costly_records_per_minute() -> int:
    """How many records that cost much a source may send a minute: see COSTLY."""
    return max(1, GLOBAL_WRITES_PER_MINUTE // COSTLY)


def on_change(listener: store.Listener) -> None:
    """Subscribe to the announced changes of each transaction; the call is inside it."""
    if listener not in store.listeners:
        store.listeners.append(listener)


def statistics() -> dict[str, int]:
    """The number of stored entries of each kind."""
    return {
        "hyperties": Hyperty.objects.count(),
        "data_objects": DataObject.objects.count(),
    }
