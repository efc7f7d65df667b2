"""Identifiers in paths: a URL as one segment of another URL.

The field sends ids percent-encoded as one segment (`/hyperty/url/hyperty%3A%2F%2Fd%2F1`). Django
routes on the decoded path, in which `%2F` and `/` are the same, so the segments are taken from the
path as sent: `raw_path` under ASGI, RAW_URI or REQUEST_URI under WSGI. A proxy must pass the path
on unchanged: neither decode it nor merge slashes (nginx: `proxy_pass` without a path and
`merge_slashes off`; Apache: `AllowEncodedSlashes NoDecode` and `nocanon`). `+` is a plus.

In /api/v1 an id is its URL in base64url without padding, which every proxy leaves unchanged.
"""

from __future__ import annotations

from urllib.parse import quote, unquote_to_bytes, urlsplit

from django.http import HttpRequest

from msgnode.core import base64url
from msgnode.core.errors import BadMessage


def segments(request: HttpRequest, below: str) -> list[str]:
    """The decoded segments of the path below `below`; empty ones at its end do not count."""
    path = _raw_path(request)
    start = path.find(below)
    rest = path[start + len(below) :] if start >= 0 else ""
    raw = rest.strip("/").split("/") if rest.strip("/") else []
    try:
        return [unquote_to_bytes(segment).decode() for segment in raw]
    except UnicodeDecodeError:
        raise BadMessage("The path is not UTF-8.") from None


def key_of(url: str) -> str:
    """The id of a URL in /api/v1.

    >>> key_of("hyperty://d/1")
    'aHlwZXJ0eTovL2QvMQ'
    """
    return base64url.encode(url.encode())


def url_of(key: str) -> str:
    """The URL of an id in /api/v1. Raises BadMessage."""
    try:
        url = base64url.decode(key).decode()
    except ValueError:
        raise BadMessage("The id is not a URL in base64url.") from None
    if key_of(url) != key:
        raise BadMessage("The id is not a URL in base64url without padding.")
    return url


def _raw_path(request: HttpRequest) -> str:
    raw = getattr(request, "scope", {}).get("raw_path")
    if raw:
        return raw.decode("latin-1").split("?", 1)[0]
    sent = request.META.get("RAW_URI") or request.META.get("REQUEST_URI")
    return urlsplit(sent).path if sent else quote(request.path)
