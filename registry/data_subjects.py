"""Exports and erases what the registry stores about a person.

That is the user, hyperties, what they report, their history, and signed records. They are found by
user ids (URLs, or e-mail addresses as their last part) and GUIDs.

If somebody else is registered at the same runtime, only the person's own entries are taken: neither
the runtime nor an object of which it is not known who reports it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import Exists, Model, OuterRef, Q, QuerySet

from .models import DataObject, GlobalRecord, Hyperty, Runtime, StatusChange, User
from .ownership import SUBJECT
from .records import idp_identifier
from .searches import guid_spellings

PORTION = 500


class Registered(NamedTuple):
    """A hyperty: its row, its address, under which user id it is found, the mark of its owner."""

    pk: int
    url: str
    user: str
    owner: str


def export(user_ids: Collection[str], guids: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """All rows with their fields, by kind."""
    return {
        model._meta.model_name or "": [_fields(row) for row in rows.iterator(chunk_size=PORTION)]
        for model, rows in _rows(user_ids, guids)
    }


def erase(user_ids: Collection[str], guids: Collection[str]) -> int:
    """Delete all rows, dependent ones first; return their number."""
    number = 0
    for model, rows in reversed(list(_rows(user_ids, guids))):
        keys = iter(list(rows.values_list("pk", flat=True)))
        while portion := list(islice(keys, PORTION)):
            with transaction.atomic():
                model._default_manager.filter(pk__in=portion).delete()
            number += len(portion)
    return number


def named_by_subjects() -> Iterator[Registered]:
    """The hyperties that logged-in subjects have registered."""
    rows = Hyperty.objects.filter(owner__startswith=SUBJECT).order_by("pk")
    for row in rows.iterator(chunk_size=PORTION):
        yield Registered(row.pk, row.url, row.user_id, row.owner)


def _rows(
    user_ids: Collection[str], guids: Collection[str]
) -> Iterator[tuple[type[Model], QuerySet[Any]]]:
    identifiers = [idp_identifier(each) for each in user_ids]
    users = User.objects.filter(Q(user_id__in=user_ids) | Q(idp_identifier__in=identifiers))
    spelt = [spelling for guid in guids for spelling in guid_spellings(guid)]
    hyperties = Hyperty.objects.filter(Q(user__in=users) | Q(guid__in=spelt))
    urls = list(hyperties.values_list("url", flat=True))
    others = Hyperty.objects.filter(runtime=OuterRef("runtime")).exclude(url__in=urls)
    alone = hyperties.exclude(runtime=None).exclude(Exists(others))
    runtimes = list(alone.values_list("runtime_id", flat=True))
    objects = DataObject.objects.filter(Q(reporter__in=urls) | Q(runtime_id__in=runtimes))
    every = urls + list(objects.values_list("url", flat=True))
    bare = [guid.rpartition("/")[2] for guid in guids]
    yield Runtime, Runtime.objects.filter(url__in=runtimes)
    yield User, users
    yield Hyperty, hyperties
    yield DataObject, objects
    yield StatusChange, StatusChange.objects.filter(url__in=every)
    yield GlobalRecord, GlobalRecord.objects.filter(guid__in=bare)


def _fields(row: Model) -> dict[str, Any]:
    return {field.name: field.value_from_object(row) for field in row._meta.concrete_fields}
