"""Redaction: cuts tokens out of texts and bodies before they are shown. Pure.

Every record, log line, alarm, decision and console page is redacted here.

Cut out are
- tokens of live sessions, in upper or lower case, also percent-encoded
- random UUIDs at the end of a runtime's address, where session tokens are written
- signed tokens, access tokens and API keys of this node, and tokens in URLs, known by their form
- in bodies, the values of fields whose name is in TOKENS
Everything else stays as it is.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any
from urllib.parse import unquote
from weakref import WeakValueDictionary

from .digest import digest

MASK = "…"
TOKENS = frozenset(
    {
        *("token", "tokenid", "accesstoken", "idtoken", "refreshtoken", "runtimetoken"),
        *("assertion", "secret", "clientsecret", "password", "authorization", "apikey"),
        "credential",  # of a TURN server
    }
)
"""Names in lower case, without `_` and `-`."""
_MAYBE_TOKENS = frozenset({"identity", "refresh", "code"})
"""Names of fields whose value is redacted only if it is a text."""

_SESSIONS: WeakValueDictionary[str, Any] = WeakValueDictionary()
"""Hash of a session's token -> the session, while this worker has it in memory."""

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_RANDOM = re.compile(rf"/?(?<![0-9a-z])({_UUID})(?![0-9a-z])", re.I)
_UUID_AS_ID = re.compile(rf'"({_UUID})"')
_IN_SESSION_URL = re.compile(
    r"((?:hyperty-)?runtime:(?://[^/\s\"]+)?/(?!p2phandler/|p2prequester/)[^/\s\"?#]+)"
    rf"/{_UUID}(?=[/?#\s\"]|$)",
    re.I,
)
_SIGNED = re.compile(r"eyJ[\w-]{8,}\.[\w-]+\.[\w-]*|eyJ[\w+=-]{60,}", re.I)
"""A signed token, or one wrapped in Base64 as assertions are."""
_MARKED = re.compile(r"mn[ak]_[\w-]{20,}", re.I)
"""Access tokens and API keys of this node, known by their prefix."""
_IN_URL = re.compile(
    r"\b((?:(?:access|id|refresh|runtime)_?)?token(?:_hint)?|code|client_secret|assertion)"
    r"=[^&\s\"]+",
    re.I,
)
_OF_PERSONS = re.compile(
    r"\b((?!(?:https?|wss?|mqtts?|domain|global)://)[a-z][a-z0-9+.-]{0,40}://[^/\s\"'<>]*)/[^\s\"'<>,;]+",
    re.I,
)
_GUID = re.compile(r"\b(user-[gu]uid://)[^\s\"'<>,;]+", re.I)
_BEFORE_AT = r"[^\s/:\"'<>(),;=]"
# Looked for from the beginning of a word: else each word is read again from each of its characters.
_MAIL = re.compile(
    rf"(?<!{_BEFORE_AT}){_BEFORE_AT}+(?:@|%40)[^\s/:\"'<>(),;]+\.?[^\s/:\"'<>(),;.]", re.I
)
_SHORTEST = 36  # characters of a session's token
PLAIN = 20
"""Text of at most this many characters contains no token."""
_REMEMBERED = 512
"""Longest text whose redacted form is cached."""
_DEPTH = 3
"""How often percent-encoding is undone to look for a token."""


def remember(token_hash: str, session: Any) -> None:
    """Cut this session's token out from now on, as long as the session is in memory."""
    if token_hash:
        _SESSIONS[token_hash] = session


def holds_token(text: str) -> bool:
    """Whether a text contains the token of a live session, or a token known by its form.

    For names that are to be stored: they are refused then, not redacted.
    """
    for _ in range(_DEPTH):
        text = unquote(text)
    if len(text) >= _SHORTEST and any(map(_opens, _RANDOM.finditer(text))):
        return True
    return any(each.search(text) for each in _may_show(text))


def cut(text: str) -> str:
    """Redact a text, such as an address.

    >>> cut("runtime://d/alice/2f4e2b06-3c0c-4b57-9d7a-0f4f6e0f6a11")
    'runtime://d/alice'
    """
    return known(text) if len(text) <= _REMEMBERED else _decoded(text)


def cut_id(text: str) -> str:
    """Redact a message's id (JSON text). Ids seldom repeat, so the result is not cached."""
    if len(text) <= PLAIN:
        return text
    if (found := _UUID_AS_ID.fullmatch(text)) is not None:
        return f'"{MASK}"' if _opens(found) else text
    return _decoded(text)


def _decoded(text: str) -> str:
    shown = plain = _plain(text)
    for _ in range(_DEPTH if "%" in shown else 0):
        plain = unquote(plain)
        if (without := _plain(plain)) != plain:
            return without
    return shown


known = lru_cache(maxsize=16_384)(_decoded)


def _plain(text: str) -> str:
    if len(text) >= _SHORTEST and "-" in text:
        text = _IN_SESSION_URL.sub(r"\1", text)
        text = _RANDOM.sub(_unless_it_opens, text)
    if len(text) > PLAIN:
        for each in _may_show(text):
            text = each.sub(rf"\1={MASK}" if each is _IN_URL else MASK, text)
    elif "=" in text:
        text = _IN_URL.sub(rf"\1={MASK}", text)
    return text


def _may_show(text: str) -> list[re.Pattern[str]]:
    """The patterns that may match a text; a cheap check before the case-insensitive searches."""
    lowered = text.lower()
    forms = [_SIGNED] if "eyj" in lowered else []
    if "mna_" in lowered or "mnk_" in lowered:
        forms.append(_MARKED)
    if "=" in text:
        forms.append(_IN_URL)
    return forms


def _opens(found: re.Match[str]) -> bool:
    return digest(found[1].lower()) in _SESSIONS


def _unless_it_opens(found: re.Match[str]) -> str:
    if not _opens(found):
        return found[0]
    return "" if found[0].startswith("/") else MASK


def without_persons(text: str) -> str:
    """Cut out what may name a person: mail addresses, and addresses behind their domain.

    >>> without_persons("user://a.org/bob@a.org is not at domain://registry.a.org/x")
    'user://a.org/… is not at domain://registry.a.org/x'
    """
    return _MAIL.sub(MASK, _OF_PERSONS.sub(rf"\1/{MASK}", _GUID.sub(rf"\1{MASK}", text)))


def without_tokens(value: Any) -> Any:
    """Redact a JSON value.

    >>> without_tokens({"accessToken": "abc", "login": "https://d/?code=abc", "n": 1})
    {'accessToken': '…', 'login': 'https://d/?code=…', 'n': 1}
    """
    if isinstance(value, dict):
        return {cut(str(name)): _shown(str(name), item) for name, item in value.items()}
    if isinstance(value, list):
        if len(value) == 2 and isinstance(value[0], str):  # a pair of name and value
            return [value[0], _shown(value[0], value[1])]
        return [without_tokens(item) for item in value]
    if isinstance(value, str):
        return cut(value)
    return value


def _shown(name: str, value: Any) -> Any:
    plain = name.replace("_", "").replace("-", "").lower()
    if plain in TOKENS and not isinstance(value, (dict, bool, type(None))):
        return MASK
    if plain in _MAYBE_TOKENS and isinstance(value, str):
        return MASK
    return without_tokens(value)
