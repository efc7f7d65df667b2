"""Searches of the domain registry: the key by its index, the rest on the few entries it finds.

A read never writes and never tells a stale status: entries are settled as they are read. What
matches more than MAX_MATCHES entries is refused rather than cut off.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from msgnode.core import addresses
from msgnode.core.errors import BadMessage, TooMany

from . import entries, rows
from .commands import Search
from .entries import Entry, Kind
from .models import DataObject, Hyperty

_GUID_SCHEME = "user-guid://"


def get(kind: Kind, url: str) -> Entry | None:
    """The entry of a URL as it is now."""
    row = rows.MODELS[kind]._default_manager.filter(url=url).first()
    return entries.settled(rows.entry(row), timezone.now())[0] if row else None


def find(search: Search) -> list[Entry]:
    """All entries that match, newest first. Raises TooMany, BadMessage for a search without key."""
    limit = int(settings.REGISTRY["MAX_MATCHES"])
    found = list(_keyed(search).order_by("-id")[: limit + 1])
    if len(found) > limit:
        raise TooMany(f"More than {limit} entries match; search by a narrower key.")
    now = timezone.now()
    settled = (entries.settled(rows.entry(row), now)[0] for row in found)
    return [
        entry
        for entry in settled
        if entries.matches(entry, search.resources, search.data_schemes)
        and (not search.scheme or addresses.parse(entry.url).scheme == search.scheme)
    ]


def guid_spellings(guid: str) -> list[str]:
    """A GUID with and without its scheme: registrations and searches write it either way."""
    bare = guid.removeprefix(_GUID_SCHEME)
    return [bare, _GUID_SCHEME + bare]


def _keyed(search: Search) -> Any:
    owner = _owner(search)
    if search.kind is Kind.HYPERTY:
        if search.url:
            owner &= Q(url=search.url)
        if search.runtime:
            owner &= Q(runtime_id=search.runtime)
        return Hyperty.objects.filter(_needed(owner))
    wanted = Q()
    if owner:
        wanted &= Q(reporter__in=Hyperty.objects.filter(owner).values("url"))
    for column in ("url", "name", "reporter"):
        if value := getattr(search, column):
            wanted &= Q(**{column: value})
    if search.runtime:
        wanted &= Q(runtime_id=search.runtime)
    return DataObject.objects.filter(_needed(wanted))


def _owner(search: Search) -> Q:
    wanted = Q()
    if search.user:
        wanted &= Q(user_id=search.user)
    if search.email:
        wanted &= Q(user__idp_identifier=search.email)
    if search.guid:
        wanted &= Q(guid__in=guid_spellings(search.guid))
    return wanted


def _needed(wanted: Q) -> Q:
    if not wanted:
        raise BadMessage("The search has no key: user, email, guid, url, runtime, name, reporter.")
    return wanted
