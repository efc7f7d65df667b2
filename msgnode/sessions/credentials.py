"""Reads the credentials of a WebSocket upgrade: its token and the origin of the page. Pure.

The token is in the header `Authorization: Bearer <token>`, in the query `?access_token=`, or in the
subprotocols `msgnode, bearer.<token>` (browsers cannot set headers; the node accepts `msgnode`, so
that the token is not sent back).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any
from urllib.parse import parse_qs, urlsplit

SUBPROTOCOL = "msgnode"
_MARK = "bearer."


def token_of(scope: dict[str, Any]) -> str:
    """The token of an upgrade, "" if it has none."""
    scheme, _, token = header_of(scope, b"authorization").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    for offered in scope.get("subprotocols") or ():
        if offered.startswith(_MARK) and len(offered) > len(_MARK):
            return str(offered[len(_MARK) :])
    query = scope.get("query_string", b"")
    return parse_qs(query.decode("latin1")).get("access_token", [""])[0] if query else ""


def bearer(token: str) -> dict[str, str]:
    """The headers with which the node's own clients send a token; none for an empty token."""
    return {"Authorization": f"Bearer {token}"} if token else {}


def agreed(offered: Iterable[str]) -> str | None:
    """The subprotocol to accept, None for none."""
    return SUBPROTOCOL if SUBPROTOCOL in offered else None


def origin_fits(scope: dict[str, Any], allowed: Collection[str]) -> bool:
    """Whether a page of this origin may connect. A client without an origin is not a browser."""
    if "*" in allowed:
        return True
    origin = header_of(scope, b"origin")
    return not origin or _plain(origin) in {_plain(each) for each in allowed}


def header_of(scope: dict[str, Any], name: bytes) -> str:
    """A header of the upgrade, "" if absent."""
    for key, value in scope.get("headers") or ():
        if key.lower() == name:
            return str(value.decode("latin1"))
    return ""


def _plain(origin: str) -> tuple[str, str, int | None]:
    try:
        parts = urlsplit(origin.lower())
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return "", origin, None
    return parts.scheme, parts.hostname or origin, port
