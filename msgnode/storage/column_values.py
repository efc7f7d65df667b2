"""Converts column values for SQLite, without the ORM's per-value checks.

What the ORM checks for each value (is it an expression, has it a time zone) is checked here once
per field. Fields of a type not known here convert their values themselves.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import (
    BooleanField,
    CharField,
    DateTimeField,
    Field,
    FloatField,
    ForeignKey,
    JSONField,
    PositiveIntegerField,
    TextField,
    UUIDField,
)

from msgnode.core.row_statements import Prepare


def preparation(field: Field[Any, Any]) -> Prepare | None:
    """The function that converts values of a field for SQLite; None if they need no conversion."""
    kind = type(field.target_field if isinstance(field, ForeignKey) else field)
    if kind in _PREPARED:
        return _PREPARED[kind]
    if isinstance(field, JSONField) and field.encoder is None:
        return _json
    return lambda value: field.get_db_prep_save(value, connection)


def _hex(value: UUID | str | None) -> str | None:
    return value.hex if isinstance(value, UUID) else value


def _moment(value: datetime | None) -> str | None:
    """As UTC, which Django uses in SQLite (USE_TZ, and no time zone of the database)."""
    return None if value is None else str(value.astimezone(UTC).replace(tzinfo=None))


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value)


_PREPARED: dict[type[Any], Prepare | None] = {
    BooleanField: None,
    CharField: None,
    FloatField: None,
    PositiveIntegerField: None,
    TextField: None,
    UUIDField: _hex,
    DateTimeField: _moment,
}
