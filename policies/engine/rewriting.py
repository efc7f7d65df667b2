"""Rewriting: what the two limit obligations do to the body of a message.

Rules
- The body given is not changed; the changed one is a copy along the paths that were cut.
- What is not there or not a list is left alone: there is nothing to limit.
- An entry whose fields cannot be judged is not kept.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from msgnode.core import json_text

from .attributes import number_form, text_form
from .conditions import Check, compile_condition
from .grammar import ConditionReader
from .language import CannotEvaluate, ObligationExpression, PolicyError
from .obligation_schema import rewritable_path

REWRITES = frozenset({"limitByNumberOfEntries", "limitByConditionOfEntries"})


class EntryFacts(dict[str, Any]):
    """The fields of one list entry, in the forms that conditions ask for."""

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
    """The body after the obligations that rewrite it. Raises PolicyError for any other."""
    for obligation in obligations:
        for attribute, limit in obligation.value.items():
            path = rewritable_path(attribute)
            if path is None:
                raise PolicyError([])
            if obligation.name == "limitByNumberOfEntries":
                body = _with_list(body, path, partial(_first, limit))
            else:
                keeps = _entry_check(json_text.encode(limit))
                body = _with_list(body, path, partial(_kept, keeps))
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


@lru_cache(maxsize=256)
def _entry_check(limit: bytes) -> Check:
    reader = ConditionReader()
    condition = reader.entries(json_text.decode(limit), "$")
    if reader.problems:
        raise PolicyError(reader.problems)
    return compile_condition(condition)


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
