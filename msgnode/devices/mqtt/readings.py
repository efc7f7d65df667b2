"""Converts a sensor's message to the value of an attribute. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from msgnode.core.errors import BadMessage

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def value_of(payload: bytes, path: tuple[str, ...]) -> bytes:
    """The value in a payload, as JSON text.

    Args:
        payload: JSON, or a text that is none and is then the value itself.
        path: the names that lead to the value; numbers are places in a list.

    Raises:
        BadMessage: it has no such value.

    >>> value_of(b"20.5", ()), value_of(b"on", ()), value_of(b'{"t": {"c": 20}}', ("t", "c"))
    (b'20.5', b'"on"', b'20')
    """
    try:
        value: Any = _decode(payload)
    except (msgspec.DecodeError, RecursionError):
        if path:
            raise BadMessage("The payload is no JSON.") from None
        value = _text(payload)
    for name in path:
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            raise BadMessage(f"The payload has no {'.'.join(path)}.")
    return _encode(value)


def _text(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        raise BadMessage("The payload is neither JSON nor text.") from None
