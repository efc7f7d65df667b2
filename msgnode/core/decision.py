"""What a policy decision is, for those who make it (policies) and those who obey it (the bus)."""

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
    """Something the enforcement point must do when it obeys the decision."""

    id: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision and what became of it after the node's defaults.

    passes    whether the message goes on (defaults for notApplicable and indeterminate applied)
    auth      the value of the mark `body.auth`: True only if a policy permitted the message
    deciding  ids of set, policy and rule that decided, outermost first
    version   number of the policy snapshot that decided, 0 for none
    body      the body to send on instead of the message's own (JSON object text), or None
    reason    words for the sender of a message that does not pass, "" for the usual ones
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
"""The decision of a node without policies: nothing applies, delivered with `auth:false`."""
