"""Converts a sensor's message to the value of an attribute, and a value to a command. Pure.

Devices write JSON with what `printf` makes of a number that they have not (`nan`, `inf`) and with
names in other encodings than UTF-8. Each such field is null, or cannot be read; the others are.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import msgspec

from msgnode.core.errors import BadMessage

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_BLANKS = b" \t\r\n"
_NO_NUMBER = re.compile(  # outside of texts; a text that does not end goes to the end, once
    r'("(?:[^"\\]|\\.)*"?)|[-+]?\b(?:nan|inf(?:inity)?)\b', re.IGNORECASE | re.DOTALL
)


def value_of(payload: bytes, path: tuple[str, ...]) -> bytes:
    """The value in a payload, as JSON text.

    Args:
        payload: JSON, or a text that is none and is then the value itself.
        path: the names that lead to the value; numbers are places in a list.

    Raises:
        BadMessage: it has no such value.

    >>> value_of(b"20.5", ()), value_of(b"on", ()), value_of(b'{"t": {"c": 20}}', ("t", "c"))
    (b'20.5', b'"on"', b'20')
    >>> value_of(b'{"t": 20, "h": nan}', ("t",)), value_of(b'{"t": 20, "h": nan}', ())
    (b'20', b'{"t":20,"h":null}')
    """
    try:
        value: Any = _decode(payload)
    except (ValueError, RecursionError):
        value = _repaired(payload)
        if value is None and path:
            raise BadMessage("The payload is no JSON.") from None
        if value is None:
            value = _text(payload)
    for name in path:
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            raise BadMessage(f"The payload has no {'.'.join(path)}.")
    try:
        return _encode(value)
    except (ValueError, OverflowError):
        raise BadMessage("The value in the payload cannot be written as JSON.") from None


def form_of(payload: bytes, before: bool) -> bool:
    """Whether a reading is JSON, and no plain text; `before` where that cannot be told.

    >>> form_of(b'{"on": 1}', False), form_of(b"on", True), form_of(b"20.5", True)
    (True, False, True)
    """
    if payload.lstrip(_BLANKS)[:1] in (b"{", b"["):
        return True
    try:
        value = _decode(payload)
    except (ValueError, RecursionError):
        return False
    return True if isinstance(value, str) else before


def written(value: Any, is_json: bool) -> bytes:
    """What is published for the value of a command.

    Args:
        value: of the command.
        is_json: whether a text is written as JSON, too.

    >>> written("off", False), written("off", True), written(20, False), written({"a": 1}, False)
    (b'off', b'"off"', b'20', b'{"a":1}')
    """
    if isinstance(value, str) and not is_json:
        return value.encode()
    return _encode(value)


def _repaired(payload: bytes) -> Any:
    """An object or a list of which single fields are no JSON; None if it is neither."""
    text = payload.decode(errors="replace").lstrip("\ufeff")
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return _clean(
            json.loads(_NO_NUMBER.sub(lambda found: found[1] or "null", text), strict=False)
        )
    except (ValueError, RecursionError):
        return None


def _clean(value: Any) -> Any:
    """The value with null for numbers that are none, and without halves of characters."""
    if isinstance(value, dict):
        return {_clean(name): _clean(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_clean(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    return value


def _text(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        raise BadMessage("The payload is neither JSON nor text.") from None
