"""Searches of the domain registry: the key by its index, other conditions on the entries it finds.

A read never writes, and never reports an outdated status: entries are settled when read. A search
with more than MAX_MATCHES results is refused, not truncated.

Queries are compiled once and executed for many searches at once: the SQL of a search depends on
which keys it has, not on their values; building and compiling it in Django takes several times as
long as the database needs to answer it by an index. And each statement waits for the GIL twice. So
the SQL of each combination of keys is kept, with the positions of its values, and waiting searches
share a statement: its parameter is a JSON array with the values of each, its rows are JSON arrays
of what each has found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec
from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.models import Q, QuerySet, TextField
from django.db.models.expressions import RawSQL
from django.utils import timezone

from msgnode.core import addresses
from msgnode.core.errors import BadMessage, NodeError, TooMany

from . import entries, rows
from .commands import Search
from .entries import Entry, Kind
from .models import Hyperty

_MARK = "\0"
FOUND = "found"
"""The name of the query's only column: the JSON of a row."""

Build = Callable[[Mapping[str, str]], QuerySet[Any]]  # of the rows for values of keys

_encode = msgspec.json.Encoder().encode


class PreparedQuery:
    """One compiled query.

    Args: build: makes the query from the value of each key. It may put something before a value,
        and must not depend on it. keys: the names of its keys. vendor: the kind of database.
    """

    def __init__(self, build: Build, keys: Iterable[str], vendor: str) -> None:
        queryset = build({key: f"{_MARK}{key}" for key in keys})
        compiler = queryset.query.get_compiler(DEFAULT_DB_ALIAS)
        of_one, params = compiler.as_sql()
        self._params = [_place(param) for param in params]
        is_sqlite = vendor == "sqlite"
        value = "json_extract(one.value, '$[{}]')" if is_sqlite else "(one.value ->> {})"
        of_one %= tuple(value.format(number) for number in range(len(params)))
        found = (
            f"json_group_array(json({FOUND}))" if is_sqlite else f"json_agg({FOUND}::json)::text"
        )
        each = "json_each(%s)" if is_sqlite else "jsonb_array_elements(%s) WITH ORDINALITY"
        columns = "" if is_sqlite else "(value, key)"
        self.sql = (
            f"SELECT (SELECT {found} FROM ({of_one.replace('%', '%%')}) AS matches)"  # noqa: S608
            f" FROM {each} AS one{columns} ORDER BY one.key"
        )
        """The SQL; its only parameter is made by `parameter`."""

    def parameter(self, searches: Sequence[Mapping[str, str]]) -> str:
        """The parameter for some searches, given the values of their keys."""
        return _encode(
            [
                [fixed if key is None else f"{fixed}{values[key]}" for fixed, key in self._params]
                for values in searches
            ]
        ).decode()

    def found(self, searches: Sequence[Mapping[str, str]]) -> list[str]:
        """The results of some searches: for each the JSON array of its rows."""
        with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
            cursor.execute(self.sql, [self.parameter(searches)])
            return [text or "[]" for (text,) in cursor.fetchall()]


def _place(param: Any) -> tuple[Any, str | None]:
    """The fixed part of a parameter, and the key whose value follows it."""
    if isinstance(param, str) and _MARK in param:
        fixed, _, key = param.partition(_MARK)
        return fixed, key
    return param, None


MAX_MATCHES = 1_000
"""More than anybody chooses from; the answer to a search has all of them."""
_GUID_SCHEME = "user-guid://"
_OWNER_KEYS = ("user", "email", "guid")
_OWN_KEYS = {
    Kind.HYPERTY: ("url", "runtime"),
    Kind.OBJECT: ("url", "name", "reporter", "runtime"),
}
_MOST_QUERIES = 256  # all combinations of keys are fewer, for one limit and one database


def get(kind: Kind, url: str) -> Entry | None:
    """The entry at a URL as it is now, None if there is none."""
    found = by_urls(kind, [url])
    return found[0] if found else None


def by_urls(kind: Kind, urls: Sequence[str]) -> list[Entry]:
    """The entries at these URLs as they are now; URLs without an entry are left out."""
    now = timezone.now()
    return [entries.settled(entry, now)[0] for entry in rows.read(kind, urls)]


def find(search: Search) -> list[Entry]:
    """All matching entries, newest first. Raises TooMany, and BadMessage without a key."""
    found = find_each([search])[0]
    if isinstance(found, NodeError):
        raise found
    return found


def find_each(searches: Sequence[Search]) -> list[list[Entry] | NodeError]:
    """Do many searches; those with the same keys share a statement.

    Returns:
        For each search its entries, or why it is refused.
    """
    limit = MAX_MATCHES
    outcomes: list[list[Entry] | NodeError] = []
    alike: dict[tuple[Kind, tuple[str, ...]], list[tuple[int, dict[str, str]]]] = {}
    for number, search in enumerate(searches):
        values = _values(search)
        outcomes.append([] if values else _without_key())
        if values and not any("\x00" in value for value in values.values()):
            # no stored text has NUL, and PostgreSQL refuses it
            alike.setdefault((search.kind, tuple(values)), []).append((number, values))
    now = timezone.now()
    for (kind, keys), some in alike.items():
        query = _query(kind, keys, limit + 1, connection.vendor)
        for (number, _), text in zip(some, query.found([each[1] for each in some]), strict=True):
            outcomes[number] = _matching(searches[number], rows.all_from_json(text), limit, now)
    return outcomes


def _matching(
    search: Search, found: list[Entry], limit: int, now: datetime
) -> list[Entry] | NodeError:
    """The entries found by the key that match the other conditions, as they are now."""
    if len(found) > limit:
        return TooMany(f"More than {limit} entries match; search with a narrower key.")
    settled = (entries.settled(entry, now)[0] for entry in found)
    return [
        entry
        for entry in settled
        if entries.matches(entry, search.resources, search.data_schemes)
        and (not search.scheme or addresses.parse(entry.url).scheme == search.scheme)
    ]


def _without_key() -> BadMessage:
    return BadMessage("The search has no key: user, email, guid, url, runtime, name, reporter.")


def guid_spellings(guid: str) -> list[str]:
    """A GUID with and without its scheme, because clients use both."""
    bare = guid.removeprefix(_GUID_SCHEME)
    return [bare, _GUID_SCHEME + bare]


def with_status(found: QuerySet[Any], status: str) -> QuerySet[Any]:
    """The rows that have a status now: one whose time is over is disconnected."""
    now = timezone.now()
    if status == entries.DISCONNECTED:
        return found.filter(Q(status=status) | Q(expires_at__lte=now))
    return found.filter(status=status).exclude(expires_at__lte=now)


def _values(search: Search) -> dict[str, str]:
    """The keys of a search, with their values."""
    keys = (*_OWNER_KEYS, *_OWN_KEYS[search.kind])
    values = {key: value for key in keys if (value := getattr(search, key))}
    if "guid" in values:
        values["guid"] = values["guid"].removeprefix(_GUID_SCHEME)
    return values


@lru_cache(_MOST_QUERIES)
def _query(kind: Kind, keys: tuple[str, ...], limit: int, vendor: str) -> PreparedQuery:
    """The query for searches with these keys, by kind of database."""
    text = RawSQL(rows.as_json(kind, vendor), (), TextField())  # noqa: S611  (our own names)

    def build(values: Mapping[str, str]) -> QuerySet[Any]:
        return _newest(kind, values, limit).annotate(**{FOUND: text}).values_list(FOUND)

    return PreparedQuery(build, keys, vendor)


def _newest(kind: Kind, values: Mapping[str, str], limit: int) -> QuerySet[Any]:
    """The query of a search, from the values of its keys."""
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
