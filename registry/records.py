"""The wire format of records: reads what clients send, writes what they get. Pure.

The keys are in docs/reference/registry.md, section A1. Reading checks presence, types and bounds,
ignores unknown keys and reports the first error; writing omits absent fields. Times are UTC with a
resolution of one second. Identifiers have at most MAX_KEY characters because they are indexed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgnode.core import addresses
from msgnode.core.errors import BadMessage

from .entries import STATUSES, Entry, Kind

URL = "URL"
MAX_KEY = addresses.MAX_HELD
MAX_TEXT = addresses.MAX_LENGTH
MAX_WORD = 32
MAX_ITEMS = 100
MAX_ITEM = 256
MAX_GUID = 255

_COLUMNS = {
    "descriptor": "descriptor",
    "guid": "guid",
    "name": "name",
    "schema": "schema",
    "reporter": "reporter",
    "runtime": "runtime",
    "status": "status",
    "p2pRequester": "p2p_requester",
    "p2pHandler": "p2p_handler",
    "resources": "resources",
    "dataSchemes": "data_schemes",
    "expires": "expires",
}
_LIMITS = {
    "status": MAX_WORD,
    "guid": MAX_GUID,
    **dict.fromkeys(("descriptor", "schema", "p2pRequester", "p2pHandler"), MAX_TEXT),
}
_COMMON = ("expires", "dataSchemes", "resources", "runtime", "status")
REQUIRED = {
    Kind.HYPERTY: (*_COMMON, "descriptor"),
    Kind.OBJECT: (*_COMMON, "schema", "name", "reporter"),
}
_P2P = ("p2pRequester", "p2pHandler")
_URLS = frozenset({"runtime", "reporter", *_P2P})
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
OPTIONAL = {Kind.HYPERTY: ("guid", *_P2P), Kind.OBJECT: _P2P}


class MissingKey(BadMessage):
    """A registration without one of its required keys."""


def registration(kind: Kind, body: object, expires_max: int) -> dict[str, Any]:
    """The fields of a registration: every required key, checked. Raises BadMessage."""
    given = _object(body)
    for key in REQUIRED[kind]:
        if key not in given:
            raise MissingKey(f"The registration lacks {key!r}.")
    return _facts(kind, given, expires_max)


def patch(kind: Kind, body: object, expires_max: int) -> dict[str, Any]:
    """The fields of a partial update: any of the known keys."""
    return _facts(kind, _object(body), expires_max)


def key(text: object, what: str) -> str:
    """Check an identifier to be stored or searched for. Raises BadMessage."""
    if not isinstance(text, str):
        raise BadMessage(f"The {what} must be a text.")
    fault = addresses.identifier_fault(text)
    if not fault and len(text) > MAX_KEY:
        fault = f"is longer than {MAX_KEY} characters"
    if not fault and what == URL and " " in text:
        fault = "contains a blank"
    if fault:
        raise BadMessage(f"The {what} {fault}.")
    return text


def record(entry: Entry) -> dict[str, Any]:
    """The entry in wire format: 13 keys for a full hyperty or data object."""
    fields: dict[str, Any] = (
        {"hypertyID": entry.url, "userID": entry.user}
        if entry.kind is Kind.HYPERTY
        else {"url": entry.url}
    )
    for name, column in _COLUMNS.items():
        if name in REQUIRED[entry.kind] or name in OPTIONAL[entry.kind]:
            value = getattr(entry, column)
            if value is not None:
                fields[name] = list(value) if isinstance(value, tuple) else value
    fields["startingTime"] = stamp(entry.started)
    fields["lastModified"] = stamp(entry.modified)
    return fields


def stamp(moment: datetime) -> str:
    """`2018-01-10T12:00:00Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def idp_identifier(user: str) -> str:
    """The last part of a user id: the e-mail address of `user://idp.example/a@b.c` and of `a@b.c`.

    >>> idp_identifier("user://idp.example/a@b.c"), idp_identifier("a@b.c")
    ('a@b.c', 'a@b.c')
    """
    return user.rsplit("/", 1)[-1]


def _object(body: object) -> Mapping[str, Any]:
    if not isinstance(body, dict):
        raise BadMessage("The registration must be a JSON object.")
    return body


def _facts(kind: Kind, given: Mapping[str, Any], expires_max: int) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for name in (*REQUIRED[kind], *OPTIONAL[kind]):
        if name not in given or (given[name] is None and name in OPTIONAL[kind]):
            continue
        value = given[name]
        if name == "expires":
            facts[name] = min(_seconds(value), expires_max)
        elif name in ("resources", "dataSchemes"):
            facts[_COLUMNS[name]] = _words(name, value)
        else:
            facts[_COLUMNS[name]] = _storable_text(name, value, _LIMITS.get(name, MAX_KEY))
        if name == "status" and value not in STATUSES:
            raise BadMessage(f"The field 'status' must be one of {', '.join(STATUSES)}.")
        if name in _URLS and " " in value:
            raise BadMessage(f"The field {name!r} is a URL and contains a blank.")
    return facts


def _seconds(value: object) -> int:
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole or value < 0:  # type: ignore[operator]
        raise BadMessage("The field 'expires' must be a whole number of seconds, 0 or more.")
    return int(value)  # type: ignore[call-overload,no-any-return,unused-ignore]


def _words(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_ITEMS:
        raise BadMessage(f"The field {name!r} must be a list of at most {MAX_ITEMS} texts.")
    return tuple(_storable_text(name, item, MAX_ITEM) for item in value)


def _storable_text(name: str, value: object, limit: int) -> str:
    if not isinstance(value, str):
        raise BadMessage(f"The field {name!r} must be text.")
    if len(value) > limit:
        raise BadMessage(f"The field {name!r} is longer than {limit} characters.")
    if _UNSTORABLE.search(value):
        raise BadMessage(f"The field {name!r} has a character that cannot be stored.")
    return value
