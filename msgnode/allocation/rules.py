"""What a request to address-allocation asks for.

docs/reference/messages.md, section 3, and section 9, rows 18-20, 37 and 44:

create  body {scheme, value: {number, allocationKey}}
delete  body {resource: key or address, or a list} and/or {childrenResources: [addresses, nested]}
Fields may stand in the body or in its `value`, and `value` may be an object or its JSON text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from msgnode.core.errors import BadMessage
from msgnode.core.messages import value_of

DEFAULT_SCHEME = "hyperty"
SCHEMES = ("hyperty", "comm", "connection", "context", "ctxt", "resource", "fs")
"""Those of the field; an address pool adds its own."""
MAX_KEY = 255


class Block(NamedTuple):
    """The addresses that a request asks for."""

    number: int
    scheme: str
    key: str


def requested_block(body: dict[str, Any], max_number: int) -> Block:
    """Read a `create` request.

    Args:
        body: the body of the request.
        max_number: most addresses per request.

    Raises:
        BadMessage: a field is wrong; the text names it.
    """
    value = _value(body)
    number = value.get("number", body.get("number", 1))
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= max_number:
        raise BadMessage(f"`number` must be a whole number from 0 to {max_number}.")
    scheme = body.get("scheme", value.get("scheme", DEFAULT_SCHEME))
    if not isinstance(scheme, str) or not scheme:
        raise BadMessage("`scheme` must be the name of an address scheme.")
    key = value.get("allocationKey", body.get("allocationKey", ""))
    if key is None:
        key = ""
    if not isinstance(key, str) or len(key) > MAX_KEY or (key and not key.isprintable()):
        raise BadMessage(f"`allocationKey` must be a text of at most {MAX_KEY} characters.")
    return Block(number, scheme.lower(), key)


def released_items(body: dict[str, Any], max_number: int) -> tuple[str, ...]:
    """Keys and addresses that `delete` names, in order and once each.

    Args:
        body: the body of the request.
        max_number: most of them per request.

    Raises:
        BadMessage: it names none, or too many.
    """
    value = _value(body)
    named = [
        source[field]
        for source in (body, value)
        for field in ("resource", "childrenResources")
        if source.get(field) is not None
    ]
    if not named:
        raise BadMessage("`delete` needs `resource` (a key or an address) or `childrenResources`.")
    items = [*islice(_flat(named), max_number + 1)]
    if len(items) > max_number:
        raise BadMessage(f"A request may name at most {max_number} addresses and keys.")
    return tuple(dict.fromkeys(items))


def _value(body: dict[str, Any]) -> dict[str, Any]:
    value = value_of(body)
    return value if isinstance(value, dict) else {}


def _flat(items: Iterable[Any]) -> Iterator[str]:
    """Texts of nested lists; raises BadMessage for what is neither."""
    stack = [iter(items)]
    while stack:
        for item in stack[-1]:
            if isinstance(item, list):
                stack.append(iter(item))
                break
            if not isinstance(item, str):
                raise BadMessage(
                    "`resource` and `childrenResources` hold texts and lists of texts."
                )
            yield item
        else:
            stack.pop()
