"""Combining algorithms: one outcome from the outcomes of siblings.

    blockOverrides      any deny, else an undetermined possible deny, else any permit
    allowOverrides      the mirror image
    firstApplicable     the first that applies; one that cannot be evaluated ends the search
    denyUnlessPermit    permit if any, else deny        permitUnlessDeny    the mirror image

Rules
- An indeterminate outcome has a side: what it might have been (D, P or DP).
- Obligations come only from children whose decision is the final one, innermost first. If no
  sibling has any, the search stops at the first decisive child.
- Children are evaluated in their order of evaluation: for the two overrides and their closed forms,
  children that can win come before those that can only lose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from msgnode.core.decision import Effect

from .attributes import Facts
from .language import ObligationExpression
from .vocabulary import Algorithm

PERMIT, DENY = Effect.PERMIT, Effect.DENY
NOT_APPLICABLE, INDETERMINATE = Effect.NOT_APPLICABLE, Effect.INDETERMINATE
SIDES = {PERMIT: "P", DENY: "D"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a rule, policy or set for a message. `side` is set if it is indeterminate."""

    effect: Effect
    side: str = ""
    deciding: tuple[str, ...] = ()
    obligations: tuple[ObligationExpression, ...] = ()
    advice: tuple[ObligationExpression, ...] = ()
    errors: tuple[str, ...] = ()


NOTHING = Outcome(NOT_APPLICABLE)

Evaluate = Callable[[Facts], Outcome]
Combine = Callable[[Facts, Iterable[int]], Outcome]


@dataclass(frozen=True, slots=True)
class Siblings:
    """Children in their order of evaluation, with what the algorithms need to know of them.

    path     ids down to their parent, for the outcome of a closed algorithm
    collect  whether any may have obligations, so that all decisive ones must be evaluated
    losers   position from which on children can only lose
    """

    children: Sequence[Evaluate]
    path: tuple[str, ...]
    collect: bool
    losers: int


def combiner(algorithm: Algorithm, siblings: Siblings) -> Combine:
    """Compile an algorithm to a function of the facts and the positions of the candidates."""
    if algorithm is Algorithm.FIRST_APPLICABLE:
        return _first_applicable(siblings)
    winner = winning_effect(algorithm)
    overrides = _overrides(siblings, winner)
    if algorithm in (Algorithm.BLOCK_OVERRIDES, Algorithm.ALLOW_OVERRIDES):
        return overrides
    loser = DENY if winner is PERMIT else PERMIT
    otherwise = Outcome(loser, deciding=siblings.path)

    def closed(facts: Facts, positions: Iterable[int]) -> Outcome:
        outcome = overrides(facts, positions)
        if outcome.effect in (winner, loser):
            return outcome
        return replace(otherwise, errors=outcome.errors) if outcome.errors else otherwise

    return closed


def winning_effect(algorithm: Algorithm) -> Effect | None:
    """The effect that overrides the other, None where the order decides."""
    if algorithm in (Algorithm.BLOCK_OVERRIDES, Algorithm.PERMIT_UNLESS_DENY):
        return DENY
    return None if algorithm is Algorithm.FIRST_APPLICABLE else PERMIT


def _first_applicable(siblings: Siblings) -> Combine:
    children = siblings.children

    def first(facts: Facts, positions: Iterable[int]) -> Outcome:
        silent: list[Outcome] = []
        for position in positions:
            outcome = children[position](facts)
            if outcome is NOTHING:
                continue
            if outcome.effect is not NOT_APPLICABLE:
                return outcome
            silent.append(outcome)
        return _merged(silent) if silent else NOTHING

    return first


def _overrides(siblings: Siblings, winner: Effect | None) -> Combine:
    children, collect, losers = siblings.children, siblings.collect, siblings.losers
    mine = "D" if winner is DENY else "P"

    def overrides(facts: Facts, positions: Iterable[int]) -> Outcome:
        won: list[Outcome] = []
        lost: list[Outcome] = []
        silent: list[Outcome] = []
        unclear: list[Outcome] = []
        for position in positions:
            if lost and position >= losers and not collect:
                break
            outcome = children[position](facts)
            if outcome is NOTHING:
                continue
            effect = outcome.effect
            if effect is winner:
                if not collect:
                    return outcome
                won.append(outcome)
            elif effect is INDETERMINATE:
                unclear.append(outcome)
            elif effect is NOT_APPLICABLE:
                silent.append(outcome)
            else:
                lost.append(outcome)
        if won:
            return _merged(won)
        if unclear:
            return _unclear(unclear, lost, mine)
        if lost:
            return lost[0] if len(lost) == 1 else _merged(lost)
        return _merged(silent) if silent else NOTHING

    return overrides


def _unclear(unclear: list[Outcome], lost: list[Outcome], mine: str) -> Outcome:
    """The outcome if nobody won and some could not be evaluated."""
    sides = {outcome.side for outcome in unclear}
    errors = tuple(error for outcome in unclear for error in outcome.errors)
    if sides <= {"P", "D"} - {mine}:  # they could only have lost
        if lost:
            return replace(_merged(lost), errors=errors)
        side = unclear[0].side
    elif sides == {mine} and not lost:
        side = mine
    else:
        side = "DP"
    first = unclear[0]
    return replace(first, side=side, errors=errors) if len(unclear) > 1 or lost else first


def _merged(outcomes: list[Outcome]) -> Outcome:
    """The first of equal decisions, with the obligations of all."""
    first = outcomes[0]
    if len(outcomes) == 1 or not any(o.obligations or o.advice or o.errors for o in outcomes):
        return first
    return replace(
        first,
        obligations=tuple(obligation for outcome in outcomes for obligation in outcome.obligations),
        advice=tuple(obligation for outcome in outcomes for obligation in outcome.advice),
        errors=tuple(error for outcome in outcomes for error in outcome.errors),
    )
