"""Between rows and entries: the only place that knows both shapes.

`entry()` reads a row, `row()` makes one; CHANGING are the columns that a changed entry writes back.
"""

from __future__ import annotations

from typing import Any

from .entries import Change, Entry, Kind
from .models import DataObject, Hyperty, RegistryEntry

HISTORY = ("kind", "url", "before", "after", "cause", "at")
MODELS: dict[Kind, type[RegistryEntry]] = {Kind.HYPERTY: Hyperty, Kind.OBJECT: DataObject}

_COMMON = (
    *("status", "expires", "resources", "data_schemes", "started_at", "p2p_requester"),
    *("p2p_handler", "modified_at", "expires_at", "ended_at", "news_at", "runtime_id", "owner"),
)
_OWN = {
    Kind.HYPERTY: ("descriptor", "guid"),
    Kind.OBJECT: ("name", "schema", "reporter"),
}
CHANGING = {
    kind: [column.removesuffix("_id") for column in (*_COMMON, *own)] for kind, own in _OWN.items()
}


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


def row(entry: Entry) -> RegistryEntry:
    """The row of an entry, without its primary key."""
    fields: dict[str, Any] = {column: getattr(entry, column) for column in _OWN[entry.kind]}
    fields["runtime_id"] = entry.runtime or None
    if entry.kind is Kind.HYPERTY:
        fields["user_id"] = entry.user
    return MODELS[entry.kind](
        url=entry.url,
        status=entry.status,
        expires=entry.expires,
        resources=list(entry.resources),
        data_schemes=list(entry.data_schemes),
        p2p_requester=entry.p2p_requester,
        p2p_handler=entry.p2p_handler,
        owner=entry.owner,
        started_at=entry.started,
        modified_at=entry.modified,
        expires_at=entry.expires_at,
        ended_at=entry.ended,
        news_at=entry.ended if entry.is_news else None,
        **fields,
    )


def history(change: Change, ops: Any) -> tuple[str, ...]:
    """The values of the HISTORY columns for a change, as the database takes them."""
    at = ops.adapt_datetimefield_value(change.at)
    return change.kind.value, change.url, change.before, change.after, change.cause.value, at
