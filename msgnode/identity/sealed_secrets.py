"""The encrypted secrets in the database: whether this node can read them, and encrypting them anew.

They are written in many places, with msgnode.identity.encryption. A node whose SECRET_KEY was
changed without the former one in SECRET_KEY_FALLBACKS reads none of them, and learns it only when
one is needed; so it looks at the start. After `encrypt_anew` no value needs a fallback any more.
Blocks: for threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.apps import apps
from django.db import transaction

from .encryption import is_current, opens, rotated

COLUMNS = (
    ("signing keys of the provider", "msgnode.ProviderKey", "sealed"),
    ("client secrets of issuers", "msgnode.Issuer", "client_secret"),
    ("secrets shared with TURN servers", "qos.TurnSecret", "sealed"),
    ("passwords of TURN servers", "qos.TurnServer", "sealed_password"),
    ("secrets of webhooks and push", "msgnode.DeviceOutlet", "sealed"),
    ("secrets of second factors", "msgnode.SecondFactor", "sealed"),
    ("secrets of legacy networks", "msgnode.LegacyNetwork", "sealed"),
    ("secrets of connectors", "msgnode.ConnectorSecret", "sealed"),
    ("messages stored for peers", "msgnode.StoredMessage", "sealed"),
)
"""All columns with encrypted values: what they are, the model, the field."""

_LOOKED_AT = 100
_PORTION = 200


@dataclass(frozen=True, slots=True)
class Column:
    """The encrypted values of a column: how many, unreadable ones, those that need a former key."""

    what: str
    number: int
    unreadable: int
    by_former_key: int


def look(most: int | None = None) -> list[Column]:
    """The state of each column; with `most`, of so many of its newest values."""
    return [_state(what, model, field, most) for what, model, field in COLUMNS]


def fault() -> str:
    """What cannot be read, in one line; "" if all can. It looks at the newest values."""
    lost = [each for each in look(_LOOKED_AT) if each.unreadable]
    if not lost:
        return ""
    counted = ", ".join(f"{each.unreadable} of {each.number} {each.what}" for each in lost)
    return (
        f"SECRET_KEY or KEY_ENCRYPTION_KEY has changed, so this cannot be read: {counted}. Name "
        "the former key in SECRET_KEY_FALLBACKS; then `manage.py secret_key --encrypt-anew`."
    )


def encrypt_anew() -> int:
    """Encrypt with the current key what needs a former one; return the number of values.

    A value that is changed at the same time is left as it was changed.
    """
    number = 0
    for _, model, field in COLUMNS:
        rows = _values(model, field)
        while portion := list(islice(rows, _PORTION)):
            number += _encrypt_portion(model, field, portion)
    return number


@transaction.atomic
def _encrypt_portion(model: str, field: str, portion: list[tuple[Any, str]]) -> int:
    objects = apps.get_model(model)._default_manager
    return sum(
        objects.filter(pk=pk, **{field: sealed}).update(**{field: rotated(sealed)})
        for pk, sealed in portion
        if not is_current(sealed) and opens(sealed)
    )


def _state(what: str, model: str, field: str, most: int | None) -> Column:
    number = unreadable = by_former_key = 0
    for _, sealed in islice(_values(model, field), most):
        number += 1
        if not is_current(sealed):
            readable = opens(sealed)
            unreadable += not readable
            by_former_key += readable
    return Column(what, number, unreadable, by_former_key)


def _values(model: str, field: str) -> Iterator[tuple[Any, str]]:
    """The keys and encrypted values of a column, the newest rows first."""
    rows = apps.get_model(model)._default_manager.exclude(**{field: ""}).order_by("-pk")
    yield from rows.values_list("pk", field).iterator(chunk_size=_PORTION)
