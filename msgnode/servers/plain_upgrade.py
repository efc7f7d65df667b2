"""Reads a request for a WebSocket that is written as nearly all are (RFC 6455, 4.1). Pure.

Twisted reads a request line by line, Daphne writes it out again, and autobahn parses that: most of
what it costs to open a socket. Here the whole request is read at once. Anything else is left to the
libraries unchanged, so that errors and whatever is rare (a body, a repeated header, escapes in the
path, old versions) are handled as usual.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_LONGEST = 8 * 1024  # bytes; shorter than what Twisted refuses
_REQUEST = re.compile(rb"GET (/(?!/)[\w./~-]*)(?:\?([!\"$-~]*))? HTTP/1\.1\r$", re.ASCII | re.M)
_HEADER = re.compile(rb"^([A-Za-z0-9-]+):([ -~]*)\r$", re.M)
_HOST = re.compile(rb"[\w.-]+(?::\d{1,5})?", re.ASCII)
_ORIGIN = re.compile(rb"https?://[\w.-]+(?::\d{1,5})?", re.ASCII)
_KEY = re.compile(rb"[A-Za-z0-9+/]{22}==")
_PROTOCOLS = re.compile(rb"[!#$&-+.\w^`|~-]+(?:, ?[!#$&-+.\w^`|~-]+)*", re.ASCII)
_OFFERS = {b"permessage-deflate", b"permessage-deflate; client_max_window_bits"}
"""Extensions that browsers offer and the node accepts none of; others may be malformed."""
_MEANS_MORE = {b"content-length", b"transfer-encoding", b"expect", b"daphne-root-path"}


class PlainUpgrade(NamedTuple):
    """A request for a WebSocket that has no fault.

    Attributes:
        path: the path of its address.
        query: what follows the question mark.
        headers: in order; each name in lower case and once.
        key: that the answer is derived from.
        subprotocols: that the client offers.
        rest: what was read behind the request.
    """

    path: str
    query: bytes
    headers: list[tuple[bytes, bytes]]
    key: bytes
    subprotocols: list[str]
    rest: bytes


def plain_upgrade(data: bytes) -> PlainUpgrade | None:
    """Read the first bytes of a connection; None if the libraries must."""
    end = data.find(b"\r\n\r\n", 0, _LONGEST)
    request = _REQUEST.match(data, 0, end + 1) if end > 0 else None
    if request is None:
        return None
    begin = request.end() + 1
    pairs = _HEADER.findall(data, begin, end + 1)
    headers = {name.lower(): value.strip(b" ") for name, value in pairs}
    number = data.count(b"\n", begin, end) + 1
    if not number == len(pairs) == len(headers) or data.count(b"\r", begin, end + 1) != number:
        return None
    if not _is_plain(headers):
        return None
    offered = headers.get(b"sec-websocket-protocol", b"").decode()
    return PlainUpgrade(
        request[1].decode(),
        request[2] or b"",
        list(headers.items()),
        headers[b"sec-websocket-key"],
        offered.replace(" ", "").split(",") if offered else [],
        data[end + 4 :],
    )


def _is_plain(headers: dict[bytes, bytes]) -> bool:
    """Whether nothing but the key is asked of who reads these headers."""
    named = headers.get
    origin, offers = named(b"origin"), named(b"sec-websocket-extensions")
    return (
        named(b"upgrade", b"").lower() == b"websocket"
        and b"upgrade" in [each.strip() for each in named(b"connection", b"").lower().split(b",")]
        and named(b"sec-websocket-version") == b"13"
        and _KEY.fullmatch(named(b"sec-websocket-key", b"")) is not None
        and _HOST.fullmatch(named(b"host", b"")) is not None
        and (origin is None or _ORIGIN.fullmatch(origin) is not None)
        and (offers is None or offers in _OFFERS)
        and _are_plain(named(b"sec-websocket-protocol"))
        and _MEANS_MORE.isdisjoint(headers)
    )


def _are_plain(protocols: bytes | None) -> bool:
    """Whether the subprotocols that are offered, if any, are all tokens and differ."""
    if protocols is None:
        return True
    each = protocols.replace(b" ", b"").split(b",")
    return _PROTOCOLS.fullmatch(protocols) is not None and len(set(each)) == len(each)
