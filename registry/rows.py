"""Converts between rows and entries; nothing else knows both forms.

`entry()` makes an entry from a model's row, `values()` the values of COLUMNS from an entry. To
`read()` many entries, the database builds their JSON with the expression `as_json()`, which
`from_json()` decodes (`all_from_json()` an array of them), at a fraction of the cost of model rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec
from django.db import connection

from .entries import Change, Entry, Kind
from .models import DataObject, Hyperty, RegistryEntry

HISTORY = ("kind", "url", "before", "after", "cause", "at")
MODELS: dict[Kind, type[RegistryEntry]] = {Kind.HYPERTY: Hyperty, Kind.OBJECT: DataObject}

_COMMON = (
    *("url", "status", "expires", "resources", "data_schemes", "owner", "p2p_requester"),
    *("p2p_handler", "started_at", "modified_at", "expires_at", "ended_at", "news_at"),
)
_OWN = {
    Kind.HYPERTY: ("descriptor", "guid"),
    Kind.OBJECT: ("name", "schema", "reporter"),
}
COLUMNS = {
    Kind.HYPERTY: (*_COMMON, "runtime_id", "user_id", *_OWN[Kind.HYPERTY]),
    Kind.OBJECT: (*_COMMON, "runtime_id", *_OWN[Kind.OBJECT]),
}

from_json = msgspec.json.Decoder(Entry, strict=False).decode  # SQLite has numbers for booleans
_encode = msgspec.json.Encoder().encode
all_from_json = msgspec.json.Decoder(list[Entry], strict=False).decode


def entry(row: Any) -> Entry:
    """The entry of a row of either kind."""
    kind = Kind.HYPERTY if isinstance(row, Hyperty) else Kind.OBJECT
    return Entry(
        kind=kind,
        url=row.url,
        status=row.status,
        expires=row.expires,
        started=row.started_at,
        modified=row.modified_at,
        runtime=row.runtime_id or "",
        user=row.user_id if kind is Kind.HYPERTY else "",
        resources=tuple(row.resources),
        data_schemes=tuple(row.data_schemes),
        p2p_requester=row.p2p_requester,
        p2p_handler=row.p2p_handler,
        owner=row.owner,
        ended=row.ended_at,
        is_news=row.news_at is not None,
        **{column: getattr(row, column) for column in _OWN[kind]},
    )


def values(entry: Entry) -> tuple[Any, ...]:
    """The values of an entry's COLUMNS."""
    common = (
        entry.url,
        entry.status,
        entry.expires,
        entry.resources,
        entry.data_schemes,
        entry.owner,
        entry.p2p_requester,
        entry.p2p_handler,
        entry.started,
        entry.modified,
        entry.expires_at,
        entry.ended,
        entry.ended if entry.is_news else None,
        entry.runtime or None,
    )
    if entry.kind is Kind.HYPERTY:
        return (*common, entry.user, entry.descriptor, entry.guid)
    return (*common, entry.name, entry.schema, entry.reporter)


@cache
def as_json(kind: Kind, vendor: str) -> str:
    """The SQL expression for an entry's JSON, by kind of database."""
    is_sqlite = vendor == "sqlite"
    table = MODELS[kind]._meta.db_table

    def words(column: str) -> str:  # SQLite has them as text
        return f"json({table}.{column})" if is_sqlite else f"{table}.{column}"

    def moment(column: str) -> str:  # SQLite has them as text, in UTC
        text = f"replace(replace({table}.{column}, ' ', 'T'), '+00:00', '') || 'Z'"
        return text if is_sqlite else f"{table}.{column}"

    plain = ("url", "status", "expires", "owner", "p2p_requester", "p2p_handler", *_OWN[kind])
    parts = {
        "kind": f"'{kind.value}'",
        **{column: f'{table}."{column}"' for column in plain},
        **{column: words(column) for column in ("resources", "data_schemes")},
        **{name: moment(f"{name}_at") for name in ("started", "modified", "ended")},
        "runtime": f"coalesce({table}.runtime_id, '')",
        "is_news": f"({table}.news_at IS NOT NULL)",
    }
    if kind is Kind.HYPERTY:
        parts["user"] = f"{table}.user_id"
    listed = ", ".join(f"'{name}', {sql}" for name, sql in parts.items())
    return f"json_object({listed})" if is_sqlite else f"json_build_object({listed})::text"


def history(change: Change) -> tuple[Any, ...]:
    """The values of the HISTORY columns for a change."""
    cause = change.cause.value
    return change.kind.value, change.url, change.before, change.after, cause, change.at


def read(kind: Kind, urls: Iterable[str], *, is_locked: bool = False) -> list[Entry]:
    """The entries at these URLs, in the order of URLs.

    Args:
        kind: the kind of the entries.
        urls: the URLs of the entries.
        is_locked: whether they are locked when read; SQLite locks everything anyway.
    """
    sql = _reading(kind, is_locked, connection.vendor)
    with connection.cursor() as cursor:
        cursor.execute(sql, [_encode(list(urls)).decode()])
        return [from_json(text) for (text,) in cursor.fetchall()]


@cache
def _reading(kind: Kind, is_locked: bool, vendor: str) -> str:
    table = MODELS[kind]._meta.db_table
    if vendor == "sqlite":
        named, lock = "url IN (SELECT value FROM json_each(%s))", ""
    else:
        named = "url = ANY(ARRAY(SELECT jsonb_array_elements_text(%s)))"
        lock = " FOR UPDATE" if is_locked else ""
    text = as_json(kind, vendor)
    return f'SELECT {text} FROM "{table}" WHERE {named} ORDER BY url{lock}'  # noqa: S608  (our own names)
