"""The decision point: compiles documents into an immutable snapshot, which decides.

    snapshot = compile_sets(sets);  snapshot.decide(facts) -> Outcome

Rules
- A snapshot never changes and keeps nothing of a message, so it may be used while another replaces
  it.
- The sets of a document are evaluated by priority, then by position. The first that decides ends
  the evaluation; after notApplicable the next is evaluated.
- A target that cannot be evaluated makes the decision below it indeterminate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .attributes import Facts
from .combining import (
    INDETERMINATE,
    NOT_APPLICABLE,
    NOTHING,
    SIDES,
    Evaluate,
    Outcome,
    Siblings,
    combiner,
    winning_effect,
)
from .conditions import Check, compile_condition
from .language import (
    ALWAYS,
    All,
    CannotEvaluate,
    Condition,
    Not,
    Policy,
    PolicySet,
    Rule,
    Some,
    Test,
)
from .scan import BLOCK, LAYERS, Guards, Scan, build_index, compile_flat, compile_scan, guards_of
from .vocabulary import Algorithm

FEW = 8
"""Up to this many siblings outside the index are evaluated one by one."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Compiled policies. `attributes` are all that they may ask for, `rules` is their number."""

    version: int
    evaluate: Evaluate
    attributes: frozenset[str]
    rules: int

    def decide(self, facts: Facts) -> Outcome:
        """The decision on one message."""
        return self.evaluate(facts)


@dataclass(frozen=True, slots=True)
class _Child:
    """A compiled set, policy or rule, with what the group of its siblings needs to know of it."""

    evaluate: Evaluate
    guards: Guards
    effects: frozenset[str]
    has_duties: bool
    priority: float
    condition: Condition | None = None  # of a rule: target and condition combined


def compile_sets(sets: Sequence[PolicySet], version: int = 0, indexed: bool = True) -> Snapshot:
    """Compile the sets of a document."""
    compiler = _Compiler(indexed)
    children = [compiler.layer(policy_set, ()) for policy_set in sets]
    evaluate, _ = compiler.group(Algorithm.FIRST_APPLICABLE, children, ())
    return Snapshot(version, evaluate, frozenset(compiler.attributes), compiler.rules)


class _Compiler:
    def __init__(self, indexed: bool) -> None:
        self.indexed = indexed
        self.attributes: set[str] = set()
        self.rules = 0

    def layer(self, layer: Policy | PolicySet, above: tuple[str, ...]) -> _Child:
        """Compile a policy or set: its target, the group of its children, its obligations."""
        path = (*above, layer.id)
        members: Iterable[Any] = layer.rules if isinstance(layer, Policy) else layer.policies
        children = []
        for member in members:
            if isinstance(member, Rule):
                children.append(self.rule(member, path))
            else:
                children.append(self.layer(member, path))
        inner, effects = self.group(layer.algorithm, children, path)
        self.attributes.update(attributes_of(layer.target))
        evaluate = _with_duties(layer, inner) if layer.obligations or layer.advice else inner
        if layer.target != ALWAYS:
            evaluate = _under_target(_check(layer.target), evaluate, path)
        has_duties = bool(layer.obligations or layer.advice) or any(c.has_duties for c in children)
        return _Child(evaluate, guards_of(layer.target), effects, has_duties, layer.priority)

    def rule(self, rule: Rule, above: tuple[str, ...]) -> _Child:
        """Compile a rule; its outcome is created once, here."""
        self.rules += 1
        condition = _both(rule.target, rule.condition)
        self.attributes.update(attributes_of(condition))
        evaluate = _rule(rule, _check(condition), (*above, rule.id))
        has_duties = bool(rule.obligations or rule.advice)
        effects = frozenset({rule.effect})
        return _Child(evaluate, guards_of(condition), effects, has_duties, rule.priority, condition)

    def group(
        self, algorithm: Algorithm, children: list[_Child], path: tuple[str, ...]
    ) -> tuple[Evaluate, frozenset[str]]:
        """Compile siblings under an algorithm; return also the effects they can have."""
        effects = frozenset(e for child in children for e in child.effects)
        winner = winning_effect(algorithm)
        losers = len(children)
        if winner is None:
            children = sorted(children, key=lambda c: c.priority)
        else:
            if algorithm in (Algorithm.DENY_UNLESS_PERMIT, Algorithm.PERMIT_UNLESS_DENY):
                effects |= {"deny" if winner == "permit" else "permit"}
            possible = [c for c in children if winner.value in c.effects]
            hopeless = [c for c in children if winner.value not in c.effects]
            children, losers = [*possible, *hopeless], len(possible)
        collect = any(child.has_duties for child in children)
        siblings = Siblings([c.evaluate for c in children], path, collect, losers)
        if len(children) == 1 and algorithm in _OPEN:
            return children[0].evaluate, effects
        return _group(combiner(algorithm, siblings), children, self.indexed), effects


_OPEN = (Algorithm.FIRST_APPLICABLE, Algorithm.BLOCK_OVERRIDES, Algorithm.ALLOW_OVERRIDES)


def attributes_of(condition: Condition) -> Iterator[str]:
    """The names of all attributes a condition may ask for."""
    pending = [condition]
    while pending:
        part = pending.pop()
        if isinstance(part, Test):
            for attribute in (part.attribute, part.reference):
                if attribute is not None:
                    yield from attribute.terms or (attribute.name,)
        elif isinstance(part, Not):
            pending.append(part.member)
        else:
            pending.extend(_members(part))


def _members(condition: Condition) -> tuple[Condition, ...]:
    return condition.members if isinstance(condition, (All, Some)) else ()


def _both(target: Condition, condition: Condition) -> Condition:
    members: list[Condition] = []
    for part in (target, condition):
        members.extend(part.members if isinstance(part, All) else (part,))
    return members[0] if len(members) == 1 else All(tuple(members))


def _check(condition: Condition) -> Check:
    """Compile a condition; a deep one also flat, with the exact one as fallback for errors."""
    exact = compile_condition(condition)
    if not is_deep(condition):
        return exact
    flat = compile_flat(condition)

    def check(facts: Facts) -> bool:
        try:
            return flat(facts)
        except CannotEvaluate:
            return exact(facts)

    return check


def is_deep(condition: Condition) -> bool:
    """Whether a condition has more layers than compile_scan inlines."""
    layer = [condition]
    for _ in range(LAYERS):
        below: list[Condition] = []
        for part in layer:
            below.extend((part.member,) if isinstance(part, Not) else _members(part))
        if not below:
            return False
        layer = below
    return True


def _rule(rule: Rule, check: Check, path: tuple[str, ...]) -> Evaluate:
    effect = next(effect for effect in SIDES if effect == rule.effect)
    holds = Outcome(effect, "", path, rule.obligations, rule.advice)

    def evaluate(facts: Facts) -> Outcome:
        try:
            return holds if check(facts) else NOTHING
        except CannotEvaluate as error:
            return _undetermined(path, SIDES[effect], error)

    return evaluate


def _undetermined(path: tuple[str, ...], side: str, error: CannotEvaluate) -> Outcome:
    return Outcome(INDETERMINATE, side, path, errors=(f"{'/'.join(path)}: {error}",))


def _under_target(check: Check, inner: Evaluate, path: tuple[str, ...]) -> Evaluate:
    def evaluate(facts: Facts) -> Outcome:
        try:
            return inner(facts) if check(facts) else NOTHING
        except CannotEvaluate as error:
            would_be = inner(facts)
            if would_be.effect is NOT_APPLICABLE:
                return NOTHING
            return _undetermined(path, would_be.side or SIDES[would_be.effect], error)

    return evaluate


def _with_duties(layer: Policy | PolicySet, inner: Evaluate) -> Evaluate:
    obligations, advice = layer.obligations, layer.advice

    def evaluate(facts: Facts) -> Outcome:
        outcome = inner(facts)
        due = obligations.get(outcome.effect.value, ())
        advised = advice.get(outcome.effect.value, ())
        if not due and not advised:
            return outcome
        return replace(
            outcome, obligations=outcome.obligations + due, advice=outcome.advice + advised
        )

    return evaluate


def _group(combine: Any, children: list[_Child], indexed: bool) -> Evaluate:
    look, rest = build_index([c.guards if indexed else {} for c in children])
    scans: list[tuple[list[int], Scan]] = []
    if len(rest) > FEW and all(children[at].condition is not None for at in rest):
        for start in range(0, len(rest), BLOCK):
            block = rest[start : start + BLOCK]
            pairs = [(at, children[at].condition) for at in block]
            scans.append((block, compile_scan(pairs)))  # type: ignore[arg-type]
    if scans:
        blocks = tuple(scans)
        return lambda facts: combine(facts, _scanned(facts, look(facts) if look else [], blocks))
    if look is None:
        return lambda facts: combine(facts, rest)
    if not rest:
        return lambda facts: combine(facts, look(facts))
    return lambda facts: combine(facts, sorted([*rest, *look(facts)]))


def _scanned(
    facts: Facts, hits: list[int], blocks: tuple[tuple[list[int], Scan], ...]
) -> Iterator[int]:
    """The candidates in order of evaluation; a later block is scanned only if needed."""
    for block, scan in blocks:
        try:
            found = scan(facts)
        except CannotEvaluate:
            found = block
        if hits:
            last = block[-1]
            found = sorted([*found, *(at for at in hits if at <= last)])
            hits = [at for at in hits if at > last]
        yield from found
    yield from hits
