"""Data objects as runtimes name them: schemes, parts, criteria, incarnations."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from typing import Any

from .errors import SyncError

_SCHEMES = {
    "connection": "connection",
    "communication": "comm",
    "context": "context",
    "walletdata": "walletData",
    "helloworld": "hello",
}
_INCARNATION = 12  # characters
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]{0,49}", re.ASCII)


def scheme_for(scheme: Any, schema: Any) -> str:
    """The scheme of an object's address: the one that was asked for, else that of its schema.

    Raises:
        SyncError: what was asked for is none.
    """
    if scheme is None:
        return _SCHEMES.get(str(schema).rpartition("/")[2].lower(), "resource")
    if not isinstance(scheme, str) or not _SCHEME.fullmatch(scheme):
        raise SyncError(400, f"{scheme!r:.60} is no scheme of an address.")
    return scheme


def new_incarnation() -> str:
    """Tells one beginning of an object from the others under the same address."""
    return uuid.uuid4().hex[:_INCARNATION]


def reported_parts_of(url: str) -> list[str]:
    """What a reporter holds."""
    return [url, f"{url}/subscription", f"{url}/children/"]


def parts_of(url: str) -> list[str]:
    """What an observer subscribes."""
    return [f"{url}/changes", f"{url}/children/"]


def is_meant(criteria: Mapping[str, Any], url: str, schema: str, name: Any) -> bool:
    """Whether an object is one that `resume` asks for."""
    known = {"resource": url, "schema": schema, "name": name}
    return all(criteria.get(key, value) == value for key, value in known.items())
