"""Changes of a data object as values: what may be in one, and applying a change to a copy. Pure.

A change is `{"attribute": "a.b", "value": …, "attributeType": …, "operation": …}`:

- with a value it sets the attribute, without one it removes it;
- `attributeType` "array" with `operation` "add" puts the list `value` in at the index that the
  attribute ends with, with "remove" takes `value` items out from there.

What does not fit the data (a path that is not there, an index beyond the end) is a BadChange:
whoever keeps a copy then knows that it is not the reporter's any more.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .errors import BadChange

MAX_OBJECT = 600_000  # bytes of an object's data as JSON: it must fit into one message
MAX_DEPTH = 100
MOST_NUMBER = 2**53 - 1
"""What JavaScript can count to; an observer there would have another number of more."""
_INDEX = re.compile(r"(?:0|[1-9][0-9]{0,9})", re.ASCII)


def plain(value: Any, is_ours: bool = True, depth: int = 0) -> Any:
    """A copy of a value that JSON can say.

    Args:
        value: the value.
        is_ours: also look at names: one with a dot in it could not be told from a path.
        depth: how deep the value lies in its object.

    Raises:
        TypeError: naming what cannot be in a data object.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return checked_text(value)
    if isinstance(value, int):
        if is_ours and abs(value) > MOST_NUMBER:
            raise TypeError(f"A data object holds integers up to {MOST_NUMBER}; use a text.")
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise TypeError(f"A data object cannot hold {value}.")
    if depth >= MAX_DEPTH:
        raise TypeError(f"A data object is at most {MAX_DEPTH} layers deep.")
    if isinstance(value, Mapping):
        for name in value:
            check_name(name, is_ours)
            checked_text(name)
        return {name: plain(item, is_ours, depth + 1) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        return [plain(item, is_ours, depth + 1) for item in value]
    raise TypeError(f"A data object cannot hold a {type(value).__name__}.")


def checked_text(text: str) -> str:
    """The text. Raises TypeError for half of a surrogate pair, which no message can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise TypeError("A data object cannot hold half of a surrogate pair.") from None
    return text


def check_name(name: Any, is_ours: bool = True) -> None:
    """Raise TypeError if an attribute cannot be called so."""
    if not isinstance(name, str) or name == "__proto__" or (is_ours and (not name or "." in name)):
        text = f"An attribute cannot be called {name!r}: no dot, not empty, not __proto__."
        raise TypeError(text)


def is_same(one: Any, other: Any) -> bool:
    """Whether JSON says the same of both; to Python True equals 1, at any depth."""
    return bool(one == other) and _sorted(one) == _sorted(other)


def _sorted(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def size_of(value: Any) -> int:
    """Bytes of a value as JSON in UTF-8."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return len(text.encode("utf-8", "surrogatepass"))


def apply_change(data: dict[str, Any], change: Mapping[str, Any]) -> None:
    """Apply a change to data in place.

    Raises:
        BadChange: it does not fit; the data is then as it was.
    """
    attribute = change.get("attribute")
    if not isinstance(attribute, str) or not attribute:
        raise BadChange("A change names its attribute.")
    *path, name = attribute.split(".")
    holder: Any = data
    for step in path:
        holder = _step_into(holder, step)
    operation = change.get("operation")
    value = change.get("value")
    if change.get("attributeType") == "array" and operation in ("add", "remove"):
        _apply_to_list(holder, name, str(operation), value, attribute, len(path))
    elif isinstance(holder, list):
        index = _index_of(name)
        if "value" not in change or index < 0 or index > len(holder):
            raise BadChange(f"{attribute} is not there.")
        holder[index : index + 1] = _copied([value], len(path))
    elif "value" in change:
        copy = _copied({name: value}, len(path))
        holder.update(copy)
    elif name in holder:
        del holder[name]
    else:
        raise BadChange(f"{attribute} is not there.")


def _step_into(holder: Any, name: str) -> Any:
    found = None
    if isinstance(holder, list):
        index = _index_of(name)
        found = holder[index] if 0 <= index < len(holder) else None
    elif isinstance(holder, dict):
        found = holder.get(name)
    if not isinstance(found, (list, dict)):
        raise BadChange(f"There is nothing at {name}.")
    return found


def _index_of(name: str) -> int:
    return int(name) if _INDEX.fullmatch(name) else -1


def _apply_to_list(
    holder: Any, name: str, operation: str, value: Any, attribute: str, depth: int
) -> None:
    index = _index_of(name)
    if not isinstance(holder, list) or index < 0 or index > len(holder):
        raise BadChange(f"{attribute} is no place in a list.")
    if operation == "remove":
        is_count = isinstance(value, int) and not isinstance(value, bool)
        if not is_count or value < 1 or index + value > len(holder):
            raise BadChange(f"There are no {value!r:.20} items at {attribute}.")
        del holder[index : index + value]
    elif not isinstance(value, list):
        raise BadChange("What is added to a list is a list.")
    else:
        holder[index:index] = _copied(value, depth)


def _copied(value: Any, depth: int) -> Any:
    try:
        return plain(value, is_ours=False, depth=depth)
    except (TypeError, RecursionError) as error:
        raise BadChange(str(error)) from None
