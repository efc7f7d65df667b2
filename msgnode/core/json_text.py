"""Reads and writes JSON documents, with msgspec if it is installed, else the standard library.

It serves code that also runs outside the node without dependencies: the policy engine in a runtime.
The message path uses msgspec directly.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"JSON has no {text}")


class DuplicateKey(ValueError):
    """An object of a document has a key twice; which one counts would be chance."""


def decode_document(text: str | bytes) -> Any:
    """The value of a text that people write, in which no object has a key twice.

    Raises:
        DuplicateKey: one has; it is named.
        DecodeError: it is no JSON.
        UnicodeDecodeError: it is no UTF-8.
        RecursionError: it is nested too deeply.
    """
    value = decode(text)
    json.loads(text, object_pairs_hook=_distinct)
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> None:
    seen = set()
    for key, _ in pairs:
        if key in seen:
            raise DuplicateKey(f"the key {key[:64]!r} stands twice in one object")
        seen.add(key)


def _decode(text: str | bytes) -> Any:
    return json.loads(text, parse_constant=_no_constant)


def _encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


DecodeError: type[Exception]
decode: Callable[[str | bytes], Any]
encode: Callable[[Any], bytes]

try:
    import msgspec
except ImportError:
    DecodeError, decode, encode = ValueError, _decode, _encode
else:
    DecodeError, decode, encode = msgspec.DecodeError, msgspec.json.decode, msgspec.json.encode
