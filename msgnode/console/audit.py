"""Who changed what: one AuditEntry a change, in the change's own transaction."""

from __future__ import annotations

from typing import Any

from django.db.models import Model

from msgnode.models import ADDRESS_LENGTH, AuditEntry

Fields = dict[str, Any]

_SECRET = frozenset({"token_hash", "epoch", "identity"})  # of sessions; auditing.py has others


def note(actor: str, action: str, object_: object, before: Fields, after: Fields) -> None:
    """Record a change by an actor."""
    AuditEntry.objects.create(
        actor=actor[:150],
        action=action,
        object=str(object_)[:ADDRESS_LENGTH],
        before=plain_fields(before),
        after=plain_fields(after),
    )


def fields_of(row: Model) -> Fields:
    """The fields of a row by name, without secrets."""
    fields = [field for field in row._meta.concrete_fields if field.name not in _SECRET]
    return {field.name: field.value_from_object(row) for field in fields}


def plain_fields(fields: Fields) -> Fields:
    """Values as JSON; other types as text."""
    return {name: value if _is_json(value) else str(value) for name, value in fields.items()}


def _is_json(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str | list | dict)
