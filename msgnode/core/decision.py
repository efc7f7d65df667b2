"""Policy decisions, as the policy engine makes them and the bus obeys them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Effect(StrEnum):
    """The four decisions of the policy language, in its wire spelling."""

    PERMIT = "permit"
    DENY = "deny"
    NOT_APPLICABLE = "notApplicable"
    INDETERMINATE = "indeterminate"


class Direction(StrEnum):
    """Which side of the bus a message is on: `in` from its sender, `out` to one recipient."""

    IN = "in"
    OUT = "out"


@dataclass(frozen=True, slots=True)
class Obligation:
    """Something the enforcement point must do when it applies the decision."""

    id: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision, with the node's defaults applied.

    passes    whether the message passes (with the defaults for notApplicable and indeterminate)
    auth      the value of the mark `body.auth`: True only if a policy permitted the message
    deciding  ids of the set, policy and rule that decided, outermost first
    version   number of the policy snapshot that decided, 0 for none
    body      the body that replaces the message's own (JSON object text), or None
    reason    text for the sender of a message that does not pass, "" for the default text
    code      code of the answer to a message that does not pass
    """

    effect: Effect
    passes: bool
    auth: bool
    deciding: tuple[str, ...] = ()
    obligations: tuple[Obligation, ...] = ()
    errors: tuple[str, ...] = ()
    version: int = 0
    body: bytes | None = None
    reason: str = ""
    code: int = 403


NOT_APPLICABLE = Decision(Effect.NOT_APPLICABLE, passes=True, auth=False)
"""The decision where no policy applies: delivered with `auth:false`."""
