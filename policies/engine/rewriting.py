"""Applies the two limit obligations to the body of a message.

Rules
- The given body is not changed; the result is a copy along the changed paths.
- A value that is absent or not a list is left alone.
- An entry whose fields cannot be evaluated is removed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from .attributes import number_form, text_form
from .conditions import Check, compile_condition
from .language import CannotEvaluate, ObligationExpression, PolicyError
from .obligation_schema import rewritable_path

REWRITES = frozenset({"limitByNumberOfEntries", "limitByConditionOfEntries"})


class EntryFacts(dict[str, Any]):
    """The fields of one list entry, in the forms that conditions use."""

    def __init__(self, entry: Any) -> None:
        self.entry = entry if isinstance(entry, dict) else {}

    def __missing__(self, key: str) -> Any:
        if key[0] == "=":
            return text_form(self[key[1:]])
        if key[0] == "#":
            return number_form(self[key[1:]])
        return self.entry.get(key)


def rewritten(
    body: dict[str, Any], obligations: tuple[ObligationExpression, ...]
) -> dict[str, Any]:
    """Apply the obligations that rewrite a body. Raises PolicyError for any other."""
    for obligation in obligations:
        for attribute, limit in obligation.value.items():
            path = rewritable_path(attribute)
            condition = obligation.conditions.get(attribute)
            if path is None:
                raise PolicyError([])
            if obligation.name == "limitByNumberOfEntries":
                body = _with_list(body, path, partial(_first, limit))
            elif condition is None:
                raise PolicyError([])
            else:
                body = _with_list(body, path, partial(_kept, _entry_check(condition)))
    return body


def _first(limit: int, entries: list[Any]) -> list[Any]:
    return entries[:limit]


def _kept(check: Check, entries: list[Any]) -> list[Any]:
    kept = []
    for entry in entries:
        try:
            if check(EntryFacts(entry)):
                kept.append(entry)
        except CannotEvaluate:
            continue
    return kept


_entry_check = lru_cache(maxsize=256)(compile_condition)


def _with_list(
    body: dict[str, Any], path: tuple[str, ...], change: Callable[[list[Any]], list[Any]]
) -> dict[str, Any]:
    key, *below = path
    value = body.get(key)
    if below:
        if not isinstance(value, dict):
            return body
        return {**body, key: _with_list(value, tuple(below), change)}
    return {**body, key: change(value)} if isinstance(value, list) else body
