"""Checks redirect URIs: a browser is only sent back to one that the client has registered, exactly.

A native client on this machine may use any port of a loopback address that it has registered by
number (RFC 8252, 7.3); everything else is compared as text (RFC 9700, 2.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import parse_qsl, urlencode, urlsplit

_LOOPBACK = re.compile(r"(http://(?:127\.0\.0\.1|\[::1\]))(?::[1-9]\d{0,4})?(/[!-~]*)?")


def is_registered(uri: str, registered: Iterable[str]) -> bool:
    """Whether a redirect URI is one of those registered."""
    plain = _without_port(uri)
    return any(
        uri == each or (plain is not None and plain == _without_port(each)) for each in registered
    )


def is_url(text: str) -> bool:
    """Whether a text can be read as a URL."""
    try:
        urlsplit(text)
    except ValueError:
        return False
    return True


def with_answer(uri: str, **answer: str) -> str:
    """A redirect URI with the parameters of an answer in its query, each once."""
    parts = urlsplit(uri)
    query = parse_qsl(parts.query, keep_blank_values=True)
    kept = [pair for pair in query if pair[0] not in answer]
    given = [(name, value) for name, value in answer.items() if value]
    return parts._replace(query=urlencode(kept + given)).geturl()


def _without_port(uri: str) -> tuple[str, str] | None:
    found = _LOOPBACK.fullmatch(uri)
    return (found[1], found[2] or "") if found else None
