"""Explains a decision: the tree of its conditions, with the result of every part and its values.

For people, not for the message path: everything is evaluated, also what a decision would not need.
Sets, policies and rules that do not apply stand in a branch of their own, at most FOLDED of each.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from policies.engine.attributes import NAN, Facts, Undetermined
from policies.engine.conditions import compile_condition
from policies.engine.language import (
    ALWAYS,
    All,
    Broken,
    CannotEvaluate,
    Condition,
    Not,
    Policy,
    PolicySet,
    Rule,
    Some,
    Test,
)
from policies.engine.pdp import compile_sets
from policies.engine.vocabulary import WEEKDAYS, Kind

SHOWN_LAYERS = 25
FOLDED = 20
DOES_NOT_APPLY = "notApplicable"
YES, NO, UNCLEAR = "true", "false", "cannot be told"


@dataclass(frozen=True, slots=True)
class Branch:
    """One part of the tree. `result` is a truth for conditions, a decision for layers."""

    label: str
    result: str
    note: str = ""
    children: list[Branch] = field(default_factory=list)


def explain(sets: Sequence[PolicySet], facts: Facts) -> list[Branch]:
    """A branch for every set that applies, in the order in which they are asked, and the others."""
    return _folded([_layer(each, facts) for each in sorted(sets, key=lambda s: s.priority)])


def _folded(branches: list[Branch]) -> list[Branch]:
    """Those that apply, and one branch for those that do not."""
    others = [each for each in branches if each.result == DOES_NOT_APPLY]
    if not others:
        return branches
    note = f"the first {FOLDED} are shown" if len(others) > FOLDED else ""
    many = Branch(f"{len(others):,} more", DOES_NOT_APPLY, note, others[:FOLDED])
    return [each for each in branches if each.result != DOES_NOT_APPLY] + [many]


def _layer(layer: PolicySet | Policy, facts: Facts) -> Branch:
    is_policy = isinstance(layer, Policy)
    one = layer if isinstance(layer, PolicySet) else PolicySet(layer.id, (layer,))
    outcome = compile_sets([one], indexed=False).decide(facts)
    branches = [] if layer.target == ALWAYS else [_condition(layer.target, facts, "target: ")]
    if isinstance(layer, Policy):
        branches += _folded([_rule(rule, facts) for rule in layer.rules])
    else:
        branches += _folded([_layer(inner, facts) for inner in layer.policies])
    what = "policy" if is_policy else "set"
    label = f"{what} {layer.id} ({layer.algorithm.value})"
    return Branch(label, outcome.effect.value, "\n".join(outcome.errors), branches)


def _rule(rule: Rule, facts: Facts) -> Branch:
    branches = [
        _condition(part, facts, f"{name}: ")
        for name, part in (("target", rule.target), ("condition", rule.condition))
        if part != ALWAYS
    ]
    truth, why = _truth(All((rule.target, rule.condition)), facts)
    result = {YES: rule.effect, NO: DOES_NOT_APPLY, UNCLEAR: "indeterminate"}[truth]
    return Branch(f"rule {rule.id} ({rule.effect})", result, why, branches)


def _condition(condition: Condition, facts: Facts, prefix: str = "", depth: int = 1) -> Branch:
    truth, why = _truth(condition, facts)
    if depth > SHOWN_LAYERS:
        return Branch(prefix + "… deeper layers", truth, why)
    if isinstance(condition, Test):
        return Branch(prefix + _words(condition), truth, why or _value(condition, facts))
    if isinstance(condition, Broken):
        return Branch(prefix + condition.why, truth, why)
    if isinstance(condition, Not):
        inner = _condition(condition.member, facts, "", depth + 1)
        return Branch(prefix + "not", truth, "", [inner])
    name = "any of" if isinstance(condition, Some) else "all of"
    members = [_condition(member, facts, "", depth + 1) for member in condition.members]
    return Branch(prefix + name, truth, "", members)


def _truth(condition: Condition, facts: Facts) -> tuple[str, str]:
    try:
        return (YES if compile_condition(condition)(facts) else NO), ""
    except CannotEvaluate as error:
        return UNCLEAR, str(error)


def _words(test: Test) -> str:
    if test.reference is not None:
        return f"{test.attribute.name} {test.operator} <{test.reference.name}>"
    shown = " or ".join(shown_value(test, value) for value in test.values)
    return f"{test.attribute.name} {test.operator} {shown}"


def shown_value(test: Test, value: Any) -> str:
    """A parameter as it was written, from the form in which it is compared."""
    if test.operator == "like":
        return "*".join(piece.replace("*", "\\*") for piece in value)
    if test.operator == "between":
        return f"{_placed(test, value[0])} … {_placed(test, value[1])}"
    if test.operator in ("moreThan", "lessThan"):
        return _placed(test, value)
    return str(value)


def _placed(test: Test, value: Any) -> str:
    kind = test.attribute.kind
    if kind is Kind.TIME:
        return f"{value // 3600:02}:{value // 60 % 60:02}:{value % 60:02}"
    if kind is Kind.WEEKDAY:
        return WEEKDAYS[value]
    if kind is Kind.DATE:
        return date.fromordinal(value).isoformat()
    return str(value)


def _value(test: Test, facts: Facts) -> str:
    """What the attribute was, in words."""
    value = facts[test.attribute.name]
    if value is None or value is NAN:
        return "absent"
    if isinstance(value, Undetermined):
        return repr(value)
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 200 else text[:200] + "…"
