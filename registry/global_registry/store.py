"""Storing signed records: who may replace one, and which are served.

Rules
- The GUID follows from the key, and the key is pinned: a record is replaced only by one that the
  same key signed and that is newer. The very same text again is fine.
- A revoked record is kept as a tombstone: it is not served (410) and nothing replaces it.
- A record past its own time-out is not served (410) until its owner stores a newer one.
- The text is stored and served byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from msgnode.core.errors import BadMessage, Conflict, Forbidden, Gone, NotFound
from registry.models import GlobalRecord

from . import guids, signed
from .signed import SignedRecord

CLOCKS_MAY_DIFFER = timedelta(days=1)


def get(guid: str) -> str:
    """The JWT stored for the GUID. Raises NotFound, Gone."""
    name = guids.bare(guid)
    row = GlobalRecord.objects.filter(guid=name).first() if guids.FORM.fullmatch(name) else None
    if row is None:
        raise NotFound("GUID not found.")
    if row.is_revoked:
        raise Gone("The record has been revoked by its owner.")
    if row.timeout <= timezone.now():
        raise Gone("The record has timed out.")
    return row.jwt


def put(guid: str, jwt: str, condition: Callable[[str | None], None] | None = None) -> bool:
    """Store the record; whether it is the first of its GUID. Raises BadMessage or Forbidden.

    `condition` is asked about the stored record (None: there is none) and may raise."""
    record = signed.read(jwt)
    if guids.bare(guid) != record.guid:
        raise BadMessage("GUIDs do not match: the address names another than the record.")
    now = timezone.now()
    if record.last_update > now + CLOCKS_MAY_DIFFER:
        raise BadMessage("The record's lastUpdate lies in the future.")
    if record.timeout <= now and not record.is_revoked:
        raise BadMessage("The record has timed out.")
    try:
        with transaction.atomic():
            return _store(record, condition)
    except IntegrityError:  # somebody stored the first record of this GUID meanwhile
        with transaction.atomic():
            return _store(record, condition)


def _store(record: SignedRecord, condition: Callable[[str | None], None] | None) -> bool:
    found = GlobalRecord.objects.filter(guid=record.guid)
    if connection.features.has_select_for_update:
        found = found.select_for_update()
    row = found.first()
    is_first = row is None
    if condition is not None:
        condition(row.jwt if row is not None else None)
    if row is None:
        row = GlobalRecord(guid=record.guid, public_key=record.public_key)
    elif row.jwt == record.jwt:
        return False
    else:
        _check_successor(row, record)
    row.jwt = record.jwt
    row.user_ids = list(record.user_ids)
    row.last_update = record.last_update
    row.timeout = record.timeout
    row.is_active = record.is_active
    row.is_revoked = record.is_revoked
    row.stored_at = timezone.now()
    row.save()
    return is_first


def _check_successor(row: GlobalRecord, record: SignedRecord) -> None:
    if row.public_key != record.public_key:
        raise Forbidden("The GUID belongs to another key.")
    if row.is_revoked:
        raise Gone("The record has been revoked by its owner.")
    if record.last_update <= row.last_update:
        raise Conflict("The record is not newer than the stored one.")
