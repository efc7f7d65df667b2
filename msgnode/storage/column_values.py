"""How the value of a column is handed to the database, without the ORM's questions at each value.

What a field asks of its value again and again (whether it is an expression, whether it has a time
zone) is asked here once, of the field. Whatever is not known here is prepared by the field itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import (
    CharField,
    DateTimeField,
    Field,
    ForeignKey,
    JSONField,
    PositiveIntegerField,
    UUIDField,
)

Prepare = Callable[[Any], Any]


def preparation(field: Field[Any, Any], vendor: str) -> Prepare | None:
    """What prepares values of a field for a kind of database; None if they go in as they are."""
    kind = type(field.target_field if isinstance(field, ForeignKey) else field)
    if kind in _PLAIN or (vendor == "postgresql" and kind in _OF_SQLITE):
        return None
    if vendor == "sqlite" and kind in _OF_SQLITE:
        return _OF_SQLITE[kind]
    if vendor == "sqlite" and isinstance(field, JSONField) and field.encoder is None:
        return _json
    return lambda value: field.get_db_prep_save(value, connection)


def _hex(value: UUID | None) -> str | None:
    return None if value is None else value.hex


def _moment(value: datetime | None) -> str | None:
    if value is None:
        return None
    if value.tzinfo is UTC and connection.timezone is UTC:
        return str(value.replace(tzinfo=None))
    return connection.ops.adapt_datetimefield_value(value)


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value)


_PLAIN = frozenset({CharField, PositiveIntegerField})
_OF_SQLITE: dict[type[Any], Prepare] = {UUIDField: _hex, DateTimeField: _moment}
"""What PostgreSQL takes as it is, and SQLite as text."""
