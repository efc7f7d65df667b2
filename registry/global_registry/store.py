"""Storing signed records: who may replace one, and which are served.

Rules
- The GUID follows from the key, and the key is pinned: a record is replaced only by one that the
  same key signed and that is newer. The very same text again is fine.
- A revoked record is kept as a tombstone: it is not served (410) and nothing replaces it.
- A record past its own time-out is not served (410) until its owner stores a newer one.
- The text is stored and served byte for byte.
- What costs little is checked first. The GUID of a stored record was proved, so nothing is derived
  again. The older variant of a GUID costs so much that the client pays for it before, and one is
  derived at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from msgnode.core.errors import BadMessage, Conflict, Forbidden, Gone, NotFound, Unavailable
from registry.models import GlobalRecord

from . import guids, signed
from .signed import SignedRecord

CLOCKS_MAY_DIFFER = timedelta(days=1)
DERIVING_SECONDS = 2.0
"""How long one waits for another's GUID of the older variant to be derived."""

_deriving = threading.Lock()
_waiting = threading.BoundedSemaphore(3)
"""One that is derived and two that wait, which leaves most threads to others."""


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


def put(
    guid: str,
    jwt: str,
    condition: Callable[[str | None], None] | None = None,
    charge: Callable[[], None] = lambda: None,
) -> bool:
    """Store the record; whether it is the first of its GUID.

    Args:
        guid: the GUID that the client names.
        jwt: the record.
        condition: called with the stored record (None: there is none); may raise.
        charge: called before the older variant of a GUID is derived; may raise TooMany.

    Raises:
        BadMessage: the record is not whole, or proves nothing.
        Forbidden: the GUID belongs to another key.
        Unavailable: too many GUIDs of the older variant are being derived.
    """
    record = signed.claimed_of(guid, jwt)
    now = timezone.now()
    if record.last_update > now + CLOCKS_MAY_DIFFER:
        raise BadMessage("The record's lastUpdate lies in the future.")
    if record.timeout <= now and not record.is_revoked:
        raise BadMessage("The record has timed out.")
    signed.check_signature(record)
    if not _follows(record, charge):
        raise BadMessage(signed.NOT_ITS_GUID)
    try:
        with transaction.atomic():
            return _store(record, condition)
    except IntegrityError:  # somebody stored the first record of this GUID meanwhile
        with transaction.atomic():
            return _store(record, condition)


def _follows(record: SignedRecord, charge: Callable[[], None]) -> bool:
    """Whether the GUID of a record follows from its key and salt, in either variant."""
    row = GlobalRecord.objects.filter(guid=record.guid).first()
    if row is not None:
        proved = (row.public_key, signed.fields(row.jwt).get("salt"))
        return proved == (record.public_key, record.salt)
    if record.guid == guids.derive(record.public_key, record.salt):
        return True
    charge()
    too_many = "Too many GUIDs of the older variant are being derived: try again later."
    if not _waiting.acquire(blocking=False):
        raise Unavailable(too_many)
    try:
        if not _deriving.acquire(timeout=DERIVING_SECONDS):
            raise Unavailable(too_many)
        try:
            return record.guid == guids.derive_legacy(record.public_key, record.salt)
        finally:
            _deriving.release()
    finally:
        _waiting.release()


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
