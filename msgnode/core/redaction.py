"""Bodies as they may be shown to people: without the tokens in them. Pure.

What stands under a name of TOKENS is cut out, and what has the form of a signed token or stands in
a URL as one, wherever it is. The rest stays as it was said.
"""

from __future__ import annotations

import re
from typing import Any

MASK = "…"
TOKENS = frozenset(
    {
        *("token", "tokenid", "accesstoken", "idtoken", "refreshtoken", "runtimetoken"),
        *("assertion", "secret", "clientsecret", "password", "authorization"),
    }
)
"""Names in lower case, without `_` and `-`."""
_MAYBE_TOKENS = frozenset({"identity", "refresh", "code"})
"""Names of objects, of numbers, or of texts that are tokens."""

_SIGNED = re.compile(r"eyJ[\w-]{8,}\.[\w-]+\.[\w-]*")
_IN_URL = re.compile(
    r"\b((?:access_?|id_?|refresh_?)?token|code|client_secret|assertion)=[^&\s\"]+", re.I
)


def without_tokens(value: Any) -> Any:
    """A value of JSON without the tokens in it.

    >>> without_tokens({"accessToken": "abc", "login": "https://d/?code=abc", "n": 1})
    {'accessToken': '…', 'login': 'https://d/?code=…', 'n': 1}
    """
    if isinstance(value, dict):
        return {name: _shown(str(name), item) for name, item in value.items()}
    if isinstance(value, list):
        if len(value) == 2 and isinstance(value[0], str):  # a pair of params
            return [value[0], _shown(value[0], value[1])]
        return [without_tokens(item) for item in value]
    if isinstance(value, str):
        return _IN_URL.sub(rf"\1={MASK}", _SIGNED.sub(MASK, value))
    return value


def _shown(name: str, value: Any) -> Any:
    plain = name.replace("_", "").replace("-", "").lower()
    if plain in TOKENS and not isinstance(value, (dict, bool, type(None))):
        return MASK
    if plain in _MAYBE_TOKENS and isinstance(value, str):
        return MASK
    return without_tokens(value)
