"""What is handed to SQLite is what each field itself would hand over."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from django.db import connection
from django.db.models import Field

from msgnode.core.row_statements import preparation
from msgnode.models import Allocation, Session, Subscription

NOW = datetime(2026, 11, 26, 1, 2, 3, 456_789, UTC)
ELSEWHERE = timezone(timedelta(hours=5, minutes=30))
VALUES: dict[str, list[Any]] = {
    "UUIDField": [uuid.UUID(int=7)],
    "ForeignKey": [uuid.UUID(int=7)],
    "DateTimeField": [None, NOW, NOW.replace(microsecond=0), NOW.astimezone(ELSEWHERE)],
    "JSONField": [{}, {"said": True, "name": "Ä \U0001f600", "n": [1, 2.5, None]}],
    "PositiveIntegerField": [0, 12],
    "CharField": ["", "runtime://example.org/ä", Session.State.CLOSED],
}
FIELDS = [
    field
    for model in (Session, Allocation, Subscription)
    for field in model._meta.concrete_fields
    if field.attname != "id" or model is Session
]


def each(field: Field[Any, Any]) -> list[Any]:
    return VALUES[field.get_internal_type()]


@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_sqlite_gets_what_the_field_gives(field: Field[Any, Any]) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("the tests run on another database")
    prepare = preparation(field, connection)
    for value in each(field):
        stored = value if prepare is None else prepare(value)
        assert stored == field.get_db_prep_save(value, connection)


def test_no_column_that_is_written_this_way_is_set_at_each_save() -> None:
    for field in FIELDS:
        assert not getattr(field, "auto_now", False) and not getattr(field, "auto_now_add", False)
