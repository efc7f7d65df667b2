"""Numbers of a run: samples, their median and spread, and ratios taken round by round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

Sample = dict[str, float]


@dataclass(slots=True)
class Case:
    """What was measured of one server under one load: a sample a round, in the order of rounds."""

    name: str
    server: str
    samples: list[Sample] = field(default_factory=list)

    def values(self, key: str) -> list[float]:
        return [sample[key] for sample in self.samples if key in sample]


@dataclass(frozen=True, slots=True)
class Spread:
    """A median and what lies around it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Ratio:
    """`over` as a share of `under` in the same round; `target` is what the project aims at.

    `wants` says on which side of the target the figure shall be: "at least" or "at most".
    """

    case: str
    key: str
    over: str
    under: str
    spread: Spread
    target: float | None = None
    wants: str = "at least"

    @property
    def is_met(self) -> bool | None:
        if self.target is None:
            return None
        if self.wants == "at least":
            return self.spread.median >= self.target
        return self.spread.median <= self.target


def ratio(
    over: Case,
    under: Case,
    key: str = "rate",
    target: float | None = None,
    wants: str = "at least",
) -> Ratio:
    """The ratio of two cases measured in alternation."""
    pairs = zip(over.values(key), under.values(key), strict=True)
    spread = Spread.of([mine / theirs for mine, theirs in pairs if theirs])
    return Ratio(over.name, key, over.server, under.server, spread, target, wants)


@dataclass(slots=True)
class PartResult:
    """All cases and ratios of one part of the bench."""

    part: str
    title: str
    cases: list[Case] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unit: str = "per second"
    headline: str = "rate"

    def case(self, name: str, server: str) -> Case:
        """The case of this name, made at its first sample."""
        for each in self.cases:
            if each.name == name and each.server == server:
                return each
        self.cases.append(Case(name, server))
        return self.cases[-1]

    def as_json(self) -> dict[str, Any]:
        return {
            "part": self.part,
            "title": self.title,
            "headline": self.headline,
            "cases": [
                {
                    "name": case.name,
                    "server": case.server,
                    "median": {
                        key: round(median(case.values(key)), 6)
                        for key in (case.samples[0] if case.samples else ())
                    },
                    "samples": [
                        {key: round(value, 6) for key, value in sample.items()}
                        for sample in case.samples
                    ],
                }
                for case in self.cases
            ],
            "ratios": [
                {
                    "case": each.case,
                    "of": each.key,
                    "over": each.over,
                    "under": each.under,
                    "median": round(each.spread.median, 3),
                    "low": round(each.spread.low, 3),
                    "high": round(each.spread.high, 3),
                    "target": each.target,
                    "wants": each.wants,
                    "is_met": each.is_met,
                }
                for each in self.ratios
            ],
            "notes": self.notes,
        }
