"""The policy language as values: what a document says once it has been read and found right.

A document is a list of policy sets; a set holds policies (or sets), a policy holds rules. Each of
the three has a target and siblings are ordered by priority (lower first), then by position.

    Condition = Test | All | Some | Not | Broken

Rules
- All(()) is the empty condition, which is always true.
- A Test compares one attribute; its parameters are constants already put into the form in which
  they are compared, or it refers to another attribute. Several parameters are alternatives.
- A truth has three values: a test that cannot be evaluated raises CannotEvaluate. `All` is false
  as soon as one member is false and `Some` true as soon as one is true, errors or not; otherwise an
  error of a member is the error of the whole. Order therefore never matters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .vocabulary import Algorithm, Kind

MAX_DEPTH = 400
"""Most layers a condition may have."""
MAX_SETS = 50
"""Most sets within sets: each takes several frames of a decision."""


class CannotEvaluate(Exception):
    """A condition has no truth value: its attribute is unknown or of the wrong kind."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong in a document, at which path, and what was expected there."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


class PolicyError(Exception):
    """A document that is not in the language; `problems` names every fault found."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Attribute:
    """What a test looks at: a plain attribute, or the sum of some (then `terms` names them)."""

    name: str
    kind: Kind
    terms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Test:
    """`attribute operator values` or `attribute operator <reference>`."""

    __test__ = False

    attribute: Attribute
    operator: str
    values: tuple[Any, ...] = ()
    reference: Attribute | None = None


@dataclass(frozen=True, slots=True)
class All:
    """True if every member is."""

    members: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """True if at least one member is."""

    members: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """True if its member is false."""

    member: Condition


@dataclass(frozen=True, slots=True)
class Broken:
    """A condition let in although it is not in the language: it can never be evaluated."""

    why: str


Condition = Test | All | Some | Not | Broken
ALWAYS = All(())


@dataclass(frozen=True, slots=True)
class ObligationExpression:
    """An obligation (or advice) as written, with the id of the set, policy or rule it stands in.

    `conditions` are those of list entries, by attribute, as they were read: a named list is what it
    was then.
    """

    name: str
    value: Any
    source: str = ""
    conditions: dict[str, Condition] = field(default_factory=dict, repr=False, compare=False)


ObligationExpressions = dict[str, tuple[ObligationExpression, ...]]
"""Duties by the decision under which they are due."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: where its target and condition hold, it has its effect."""

    id: str
    effect: str
    target: Condition = ALWAYS
    condition: Condition = ALWAYS
    priority: float = 0
    obligations: tuple[ObligationExpression, ...] = ()
    advice: tuple[ObligationExpression, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules under one target, combined by an algorithm."""

    id: str
    rules: tuple[Rule, ...]
    target: Condition = ALWAYS
    algorithm: Algorithm = Algorithm.BLOCK_OVERRIDES
    priority: float = 0
    obligations: ObligationExpressions = field(default_factory=dict)
    advice: ObligationExpressions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PolicySet:
    """Policies (or sets) under one target, combined by an algorithm."""

    id: str
    policies: tuple[Policy | PolicySet, ...]
    target: Condition = ALWAYS
    algorithm: Algorithm = Algorithm.BLOCK_OVERRIDES
    priority: float = 0
    obligations: ObligationExpressions = field(default_factory=dict)
    advice: ObligationExpressions = field(default_factory=dict)
    version: float = 0
    update: str = ""
