"""Verdicts: whether a message passes, by its decision and the node's defaults.

| decision       | passes               | body.auth |
| permit         | yes                  | true      |
| deny           | no                   | false     |
| notApplicable  | as the default says  | false     |
| indeterminate  | as the default says  | false     |
"""

from __future__ import annotations

from dataclasses import dataclass

from msgnode.core.decision import Effect
from policies.engine.combining import Outcome
from policies.engine.language import ObligationExpression
from policies.engine.rewriting import REWRITES


@dataclass(frozen=True, slots=True)
class Defaults:
    """The node's settings for messages that no policy decides."""

    deliver_not_applicable: bool = True
    deliver_indeterminate: bool = False


def verdict(effect: Effect, defaults: Defaults) -> tuple[bool, bool]:
    """Whether the message passes, and its mark `body.auth`."""
    if effect is Effect.PERMIT:
        return True, True
    if effect is Effect.NOT_APPLICABLE:
        return defaults.deliver_not_applicable, False
    return effect is Effect.INDETERMINATE and defaults.deliver_indeterminate, False


def rewrites_of(outcome: Outcome) -> tuple[ObligationExpression, ...]:
    """The obligations that change the message."""
    return tuple(obligation for obligation in outcome.obligations if obligation.name in REWRITES)
