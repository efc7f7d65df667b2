"""How the value of a column is handed to SQLite, without the ORM's questions at each value.

What a field asks of its value again and again (whether it is an expression, whether it has a time
zone) is asked here once, of the field. Whatever is not known here is prepared by the field itself.
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
    """What prepares values of a field for SQLite; None if they go in as they are."""
    kind = type(field.target_field if isinstance(field, ForeignKey) else field)
    if kind in _PREPARED:
        return _PREPARED[kind]
    if isinstance(field, JSONField) and field.encoder is None:
        return _json
    return lambda value: field.get_db_prep_save(value, connection)


def _hex(value: UUID | str | None) -> str | None:
    return value.hex if isinstance(value, UUID) else value


def _moment(value: datetime | None) -> str | None:
    """In UTC, which is what Django's SQLite has (USE_TZ, and no time zone of the database)."""
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
