"""Searches of the domain registry: the key by its index, the rest on the few entries it finds.

A read never writes and never tells a stale status: entries are settled as they are read. What
matches more than MAX_MATCHES entries is refused rather than cut off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import Q, QuerySet, TextField
from django.db.models.expressions import RawSQL
from django.utils import timezone

from msgnode.core import addresses
from msgnode.core.errors import BadMessage, TooMany

from . import entries, rows, statements
from .commands import Search
from .entries import Entry, Kind
from .models import Hyperty
from .prepared import PreparedQuery

_GUID_SCHEME = "user-guid://"
_OWNER_KEYS = ("user", "email", "guid")
_OWN_KEYS = {
    Kind.HYPERTY: ("url", "runtime"),
    Kind.OBJECT: ("url", "name", "reporter", "runtime"),
}
_MOST_QUERIES = 256  # all combinations of keys are fewer, for one limit and one database


def get(kind: Kind, url: str) -> Entry | None:
    """The entry of a URL as it is now."""
    found = by_urls(kind, [url])
    return found[0] if found else None


def by_urls(kind: Kind, urls: Sequence[str]) -> list[Entry]:
    """The entries of these URLs as they are now; of one that is none there is none."""
    now = timezone.now()
    return [entries.settled(entry, now)[0] for entry in statements.read(kind, urls)]


def find(search: Search) -> list[Entry]:
    """All entries that match, newest first. Raises TooMany, BadMessage for a search without key."""
    limit = int(settings.REGISTRY["MAX_MATCHES"])
    found = _rows(search, limit + 1)
    if len(found) > limit:
        raise TooMany(f"More than {limit} entries match; search by a narrower key.")
    now = timezone.now()
    settled = (entries.settled(rows.from_json(text), now)[0] for (text,) in found)
    return [
        entry
        for entry in settled
        if entries.matches(entry, search.resources, search.data_schemes)
        and (not search.scheme or addresses.parse(entry.url).scheme == search.scheme)
    ]


def guid_spellings(guid: str) -> list[str]:
    """A GUID with and without its scheme: registrations and searches write it either way."""
    bare = guid.removeprefix(_GUID_SCHEME)
    return [bare, _GUID_SCHEME + bare]


def _rows(search: Search, limit: int) -> list[Any]:
    """The newest rows of a search's key: the JSON of an entry each."""
    keys = (*_OWNER_KEYS, *_OWN_KEYS[search.kind])
    values = {key: value for key in keys if (value := getattr(search, key))}
    if not values:
        raise BadMessage("The search has no key: user, email, guid, url, runtime, name, reporter.")
    if any("\x00" in value for value in values.values()):
        return []  # nothing that is stored has it, and PostgreSQL does not take it
    if "guid" in values:
        values["guid"] = values["guid"].removeprefix(_GUID_SCHEME)
    return _query(search.kind, tuple(values), limit, connection.vendor).rows(values)


@lru_cache(_MOST_QUERIES)
def _query(kind: Kind, keys: tuple[str, ...], limit: int, vendor: str) -> PreparedQuery:
    """The query of searches with these keys; it is another for each kind of database."""
    text = RawSQL(rows.as_json(kind, vendor), (), TextField())  # noqa: S611  (our own names)
    return PreparedQuery(lambda values: _newest(kind, values, limit).values_list(text), keys)


def _newest(kind: Kind, values: Mapping[str, str], limit: int) -> QuerySet[Any]:
    """The query of a search, by the values of its keys."""
    owner = Q()
    for key, column in (("user", "user_id"), ("email", "user__idp_identifier")):
        if key in values:
            owner &= Q(**{column: values[key]})
    if "guid" in values:
        owner &= Q(guid__in=guid_spellings(values["guid"]))
    wanted = Q()
    for key in _OWN_KEYS[kind]:
        if key in values:
            wanted &= Q(**{"runtime_id" if key == "runtime" else key: values[key]})
    if kind is Kind.HYPERTY:
        wanted &= owner
    elif owner:
        wanted &= Q(reporter__in=Hyperty.objects.filter(owner).values("url"))
    return rows.MODELS[kind]._default_manager.filter(wanted).order_by("-id")[:limit]
