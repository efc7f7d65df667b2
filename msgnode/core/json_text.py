"""Reads and writes JSON documents, with msgspec if it is installed, else the standard library.

It serves code that also runs outside the node without dependencies: the policy engine in a runtime.
The message path uses msgspec directly.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"JSON has no {text}")


_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class UnfitDocument(ValueError):
    """JSON that is no document.

    An object has a key twice, and which one counts would be chance; or a text has a NUL, which
    PostgreSQL does not store.
    """


def decode_document(text: str | bytes) -> Any:
    """The value of a text that people write, with each key of an object once, and without NUL.

    Raises:
        UnfitDocument: it is otherwise; the text says where.
        DecodeError: it is no JSON.
        UnicodeDecodeError: it is no UTF-8.
        RecursionError: it is nested too deeply.
    """
    value = decode(text)
    if _NUL.search(text if isinstance(text, str) else text.decode()):
        raise UnfitDocument("a text has the character NUL (\\u0000)")
    json.loads(text, object_pairs_hook=_distinct)
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> None:
    seen = set()
    for key, _ in pairs:
        if key in seen:
            raise UnfitDocument(f"the key {key[:64]!r} stands twice in one object")
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

UNREADABLE: tuple[type[Exception], ...]
UNREADABLE = (UnfitDocument, DecodeError, UnicodeDecodeError, RecursionError)
"""What `decode_document` raises."""


def fault_of(error: Exception) -> str:
    """Why a document cannot be read, in words."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error) if isinstance(error, UnfitDocument) else f"not JSON: {error}"


def storable(value: Any) -> Any:
    """A JSON value as PostgreSQL stores it: U+FFFD stands in place of each NUL.

    >>> storable({"said": ["a\\0b", 1]})
    {'said': ['a\ufffdb', 1]}
    """
    text = encode(value).decode()
    if "\\u0000" not in text:
        return value
    return decode(_NUL.sub(lambda found: found[0].removesuffix("\\u0000") + "\\ufffd", text))
