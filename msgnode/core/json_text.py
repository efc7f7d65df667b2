"""JSON text of documents: by msgspec where it is installed, else by the standard library.

For what is used outside of the node as well, where nothing is installed for it: the policy engine
in a runtime. The path of a message uses msgspec itself.
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
