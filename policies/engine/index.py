"""The target index: finds the siblings that can apply, with a few dictionary look-ups.

A child can be indexed if its target or condition requires an equality with constants. For each
child the attribute that best distinguishes siblings is used.

Rules
- A child that the index leaves out is notApplicable whatever else it contains, errors included: a
  conjunction with a false member is false.
- If the attribute cannot be determined, every child is a candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .attributes import Facts, text_key
from .language import All, CannotEvaluate, Condition, Test

Guards = dict[str, frozenset[str]]
Look = Callable[[Facts], list[int]]


def guards_of(condition: Condition) -> Guards:
    """The equalities that a condition requires, by key of the facts."""
    found: Guards = {}
    pending = [condition]
    while pending:
        part = pending.pop()
        if isinstance(part, All):
            pending.extend(part.members)
        elif (
            isinstance(part, Test)
            and part.operator in ("equals", "in")
            and part.reference is None
            and part.values
        ):
            found.setdefault(text_key(part.attribute), frozenset(part.values))
    return found


def build_index(guards: Sequence[Guards]) -> tuple[Look | None, list[int]]:
    """Build a look-up of candidate positions; return it, and the positions it does not cover."""
    spread: dict[str, set[str]] = {}
    for own in guards:
        for key, values in own.items():
            spread.setdefault(key, set()).update(values)
    tables: dict[str, dict[str, list[int]]] = {}
    rest = []
    for position, own in enumerate(guards):
        if not own:
            rest.append(position)
            continue
        key = max(own, key=lambda k: (len(spread[k]), -len(own[k]), k))
        table = tables.setdefault(key, {})
        for value in own[key]:
            table.setdefault(value, []).append(position)
    if not tables:
        return None, rest
    everything = sorted(set(range(len(guards))) - set(rest))
    pairs = tuple(tables.items())
    if len(pairs) == 1:
        return _one_table(*pairs[0], everything), rest
    return _many_tables(pairs, everything), rest


def _one_table(key: str, table: dict[str, list[int]], everything: list[int]) -> Look:
    none: list[int] = []

    def look(facts: Facts) -> list[int]:
        value = facts[key]
        if value.__class__ is str:
            return table.get(value, none)
        if value is None:
            return none
        try:
            return sorted({at for text in value for at in table.get(text, none)})
        except CannotEvaluate:
            return everything

    return look


def _many_tables(
    pairs: tuple[tuple[str, dict[str, list[int]]], ...], everything: list[int]
) -> Look:
    none: list[int] = []

    def look(facts: Facts) -> list[int]:
        found = none
        for key, table in pairs:
            value = facts[key]
            if value.__class__ is str:
                hits = table.get(value)
            elif value is None:
                continue
            else:
                try:
                    hits = [at for text in value for at in table.get(text, none)]
                except CannotEvaluate:
                    return everything
            if hits:
                found = found + hits
        return sorted(set(found)) if found else none

    return look
