"""What a person's record says: read with suspicion, written as the field reads it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from msgnode.core import addresses
from msgnode.core.errors import BadMessage
from registry.global_registry import signed

from .errors import GraphError
from .keys import Keys

LIFETIME = timedelta(days=3_650)
Record = dict[str, Any]
Edit = Callable[[Record], None]


class UserId(NamedTuple):
    """A user, and the domain whose registry knows his hyperties."""

    uid: str
    domain: str


@dataclass(frozen=True, slots=True)
class Person:
    """What a record that has proved genuine says of a person; what he says is his own word.

    Attributes:
        guid: without scheme.
        user_ids: each once.
        legacy_ids: dicts with `type`, `category`, `id`: how to reach him outside the architecture.
        defaults: `voice`, `chat`, `video`: what he prefers to be reached by.
        last_update, timeout: by the person's clock.
    """

    guid: str
    user_ids: tuple[UserId, ...]
    legacy_ids: tuple[dict[str, Any], ...]
    defaults: dict[str, str]
    last_update: datetime
    timeout: datetime
    is_active: bool
    is_revoked: bool


def read(jwt: str) -> tuple[Person, Record]:
    """The person of a record, and the record itself. Raises GraphError (502)."""
    try:
        proved = signed.read(jwt)
        record = signed.fields(jwt)
    except BadMessage as error:
        raise GraphError(502, f"The registry's record is no good: {error}") from None
    legacy = record.get("legacyIDs")
    known = [each for each in legacy if isinstance(each, dict)] if isinstance(legacy, list) else []
    person = Person(
        guid=proved.guid,
        user_ids=tuple(dict.fromkeys(user_id(each) for each in record["userIDs"])),
        legacy_ids=tuple(known),
        defaults={name: record["defaults"][name] for name in ("voice", "chat", "video")},
        last_update=proved.last_update,
        timeout=proved.timeout,
        is_active=proved.is_active,
        is_revoked=proved.is_revoked,
    )
    return person, record


def user_id(listed: Any) -> UserId:
    """One entry of `userIDs` in any of the spellings in use."""
    if isinstance(listed, dict):
        uid = str(listed.get("uid", listed.get("uID")))
        domain = listed.get("domain")
        if isinstance(domain, str) and domain:
            return UserId(uid, domain.lower())
    else:
        uid = str(listed)
    return UserId(uid, domain_of(uid))


def domain_of(uid: str) -> str:
    """The domain that a user URL or an e-mail address names, "" if none."""
    if "://" in uid:
        return addresses.parse(uid).home
    return uid.rpartition("@")[2].lower() if "@" in uid else ""


def new_record(keys: Keys) -> Record:
    """The record of somebody who has none."""
    return {
        "schemaVersion": 1,
        "guid": keys.guid,
        "salt": keys.salt,
        "userIDs": [],
        "lastUpdate": "",
        "timeout": "",
        "publicKey": keys.public_key,
        "active": 1,
        "revoked": 0,
        "defaults": {"voice": "", "chat": "", "video": ""},
        "legacyIDs": [],
    }


def sign(record: Record, keys: Keys, after: datetime | None, now: datetime) -> str:
    """The record signed, newer than `after`, good for ten years.

    In DER: runtimes of the field verify nothing else.

    Raises:
        GraphError: 413; no registry takes it.
    """
    moment = now if after is None else max(now, after + timedelta(milliseconds=1))
    record |= {"lastUpdate": _iso_time(moment), "timeout": _iso_time(moment + LIFETIME)}
    jwt = signed.sign(record, keys.private, "der")
    if len(jwt) > signed.MAX_LENGTH:
        raise GraphError(413, f"The record has {len(jwt)} characters, {signed.MAX_LENGTH} at most.")
    return jwt


def _iso_time(moment: datetime) -> str:
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
