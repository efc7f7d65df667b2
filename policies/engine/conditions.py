"""Compiles conditions: each becomes one function of the facts, with its constants.

    compile_condition(condition)(facts) -> bool, or raises CannotEvaluate

Rules
- At decision time nothing is parsed or looked up by name, except attributes.
- The result never depends on the order of members (the three-valued logic of the language): a
  raised CannotEvaluate is kept unless another member decides the result.
- One Python frame per layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .attributes import NAN, Undetermined, text_key
from .language import All, Attribute, Broken, CannotEvaluate, Condition, Not, Test
from .vocabulary import Kind

Values = Mapping[str, Any]
Check = Callable[[Any], bool]


def compile_condition(condition: Condition) -> Check:
    """Compile a condition to a function of the facts."""
    if isinstance(condition, Test):
        return _compile_test(condition)
    if isinstance(condition, Broken):
        return _broken(condition.why)
    if isinstance(condition, Not):
        return _negation(compile_condition(condition.member))
    parts = []
    for member in condition.members:
        parts.append(compile_condition(member))
    if len(parts) == 1:
        return parts[0]
    join = _conjunction if isinstance(condition, All) else _disjunction
    return join(tuple(parts))


def _conjunction(parts: tuple[Check, ...]) -> Check:
    if not parts:
        return lambda facts: True
    if len(parts) == 2:
        first, second = parts

        def both(facts: Any) -> bool:
            try:
                if not first(facts):
                    return False
            except CannotEvaluate:
                if not second(facts):
                    return False
                raise
            return second(facts)

        return both

    def every(facts: Any) -> bool:
        trouble = None
        for part in parts:
            try:
                if not part(facts):
                    return False
            except CannotEvaluate as error:
                trouble = error
        if trouble is not None:
            raise trouble
        return True

    return every


def _disjunction(parts: tuple[Check, ...]) -> Check:
    if len(parts) == 2:
        first, second = parts

        def either(facts: Any) -> bool:
            try:
                if first(facts):
                    return True
            except CannotEvaluate:
                if second(facts):
                    return True
                raise
            return second(facts)

        return either

    def some(facts: Any) -> bool:
        trouble = None
        for part in parts:
            try:
                if part(facts):
                    return True
            except CannotEvaluate as error:
                trouble = error
        if trouble is not None:
            raise trouble
        return False

    return some


def _negation(part: Check) -> Check:
    return lambda facts: not part(facts)


def _broken(why: str) -> Check:
    def check(facts: Any) -> bool:
        raise CannotEvaluate(why)

    return check


def _compile_test(test: Test) -> Check:
    name, values = test.attribute.name, test.values
    operator = test.operator
    if operator == "exists":
        return _exists(name, values[0])
    if test.reference is not None:
        return _referring(test)
    if operator in ("moreThan", "lessThan", "between"):
        return _ordered("#" + name, operator, values)
    key = text_key(test.attribute)
    if operator == "contains":
        return _contains(key, values)
    if operator == "like":
        return _like(key, values)
    return _among(key, frozenset(values))


def _exists(key: str, wanted: bool) -> Check:
    def check(facts: Any) -> bool:
        value = facts[key]
        if value.__class__ is Undetermined:
            value.ask()
        return (value is not None) is wanted

    return check


def _among(key: str, wanted: frozenset[str]) -> Check:
    if key[0] != "=":
        if len(wanted) == 1:
            (only,) = wanted
            return lambda facts: facts[key] == only
        return lambda facts: facts[key] in wanted

    def check(facts: Any) -> bool:
        value = facts[key]
        if value.__class__ is str:
            return value in wanted
        return value is not None and any(item in wanted for item in value)

    return check


def _ordered(key: str, operator: str, values: tuple[Any, ...]) -> Check:
    if not values:
        return lambda facts: False
    if operator == "moreThan":
        least = min(values)
        return lambda facts: facts[key] > least
    if operator == "lessThan":
        most = max(values)
        return lambda facts: facts[key] < most
    if len(values) == 1 and values[0][0] <= values[0][1]:
        low, high = values[0]
        return lambda facts: low <= facts[key] <= high

    def inside(facts: Any) -> bool:
        value = facts[key]
        for low, high in values:
            if low <= high:
                if low <= value <= high:
                    return True
            elif value >= low or value <= high:
                return True
        return False

    return inside


def _contains(key: str, values: tuple[str, ...]) -> Check:
    def check(facts: Any) -> bool:
        value = facts[key]
        if value is None:
            return False
        if value.__class__ is str:
            return any(part in value for part in values)
        held = tuple(value)
        return any(part in held for part in values)

    return check


def _like(key: str, patterns: tuple[tuple[str, ...], ...]) -> Check:
    matchers = tuple(matcher(pieces) for pieces in patterns)
    if len(matchers) == 1 and key[0] != "=":
        (matches_one,) = matchers

        def check_one(facts: Any) -> bool:
            value = facts[key]
            return value is not None and matches_one(value)

        return check_one

    def check(facts: Any) -> bool:
        value = facts[key]
        if value is None:
            return False
        texts = (value,) if value.__class__ is str else tuple(value)
        return any(matches(text) for text in texts for matches in matchers)

    return check


def matcher(pieces: tuple[str, ...]) -> Callable[[str], bool]:
    """A matcher for the pieces between stars, anchored at both ends, in linear time."""
    if len(pieces) == 1:
        return pieces[0].__eq__
    head, *middle, tail = pieces
    shortest = len(head) + len(tail)

    def matches(text: str) -> bool:
        if len(text) < shortest or not text.startswith(head) or not text.endswith(tail):
            return False
        at, end = len(head), len(text) - len(tail)
        for piece in middle:
            at = text.find(piece, at, end)
            if at < 0:
                return False
            at += len(piece)
        return True

    return matches


def _referring(test: Test) -> Check:
    reference: Attribute = test.reference  # type: ignore[assignment]
    name, other = test.attribute.name, reference.name
    if test.operator in ("moreThan", "lessThan"):
        return _compared("#" + name, "#" + other, test.operator == "moreThan")
    mine, theirs = text_key(test.attribute), text_key(reference)
    fold = Kind.FOLDED in (test.attribute.kind, reference.kind)
    holds = test.operator == "contains"

    def check(facts: Any) -> bool:
        ours, wanted = _texts(facts[mine], fold), _texts(facts[theirs], fold)
        if holds and facts[mine].__class__ is str:
            return any(part in ours[0] for part in wanted)
        return any(text in wanted for text in ours)

    return check


def _compared(mine: str, theirs: str, above: bool) -> Check:
    def check(facts: Any) -> bool:
        left, right = facts[mine], facts[theirs]
        if left is NAN or right is NAN:  # absent: false, whatever the other is
            return False
        return bool(left > right if above else left < right)

    return check


def _texts(value: Any, fold: bool) -> tuple[str, ...]:
    if value is None:
        return ()
    texts = (value,) if value.__class__ is str else tuple(value)
    return tuple(text.lower() for text in texts) if fold else texts
