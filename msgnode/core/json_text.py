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
