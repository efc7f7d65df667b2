"""The policy language as values: the content of a valid document.

A document is a list of policy sets; a set holds policies (or sets), a policy holds rules. Each of
the three has a target; siblings are ordered by priority (lower first), then by position.

    Condition = Test | All | Some | Not | Broken

Rules
- All(()) is the empty condition, which is always true.
- A Test compares one attribute, either with constants that are already in the form in which they
  are compared, or with another attribute. Several parameters are alternatives.
- Logic is three-valued: a test that cannot be evaluated raises CannotEvaluate. `All` is false as
  soon as one member is false and `Some` true as soon as one is true, despite errors; otherwise an
  error of a member is the error of the whole. So the order of members never matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .vocabulary import Algorithm, Kind

Lists = Mapping[str, Sequence[str]]
"""The operator's named lists."""
MAX_DEPTH = 400
"""Most layers a condition may have."""
MAX_SETS = 50
"""Most levels of nested sets; each takes several stack frames of a decision."""


class CannotEvaluate(Exception):
    """A condition has no truth value: its attribute is unknown or of the wrong kind."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An error in a document: its path, and what was expected there."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


class PolicyError(Exception):
    """An invalid document; `problems` has every error."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Attribute:
    """The attribute of a test: a plain one, or the sum of several (`terms`)."""

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
    """An invalid condition that was accepted; it can never be evaluated."""

    why: str


Condition = Test | All | Some | Not | Broken
ALWAYS = All(())


@dataclass(frozen=True, slots=True)
class ObligationExpression:
    """An obligation (or advice) as written, with the id of the set, policy or rule that has it.

    `conditions` are those on list entries, by attribute, with named lists as of when they were
    read.
    """

    name: str
    value: Any
    source: str = ""
    conditions: dict[str, Condition] = field(default_factory=dict, repr=False, compare=False)


ObligationExpressions = dict[str, tuple[ObligationExpression, ...]]
"""Obligations by the decision for which they are due."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: it has its effect if its target and condition hold."""

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
