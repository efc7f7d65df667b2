"""Editions: a published version as the workers hold it, compiled and ready to decide.

Rules
- A set's mode says what it may do: `enforce` decides, `shadow` only tells what it would have
  decided together with the enforced ones, `off` is not compiled.
- An edition is made whole and put in place by one assignment; nobody ever sees half of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .documents import MODES, read_document
from .pdp import Snapshot, compile_sets
from .pip import ALLOCATIONS, FETCHED

CLOCK = frozenset({"time", "date", "weekday"})

Lists = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Edition:
    """What is in force.

    shadow     the decision if the sets in shadow mode were enforced too, None if there are none
    counted    attributes that count messages
    fetched    attributes that must be fetched before a message is judged
    """

    version: int
    enforced: Snapshot
    shadow: Snapshot | None
    counted: frozenset[str]
    fetched: frozenset[str]
    uses_clock: bool
    uses_direction: bool

    @property
    def is_empty(self) -> bool:
        """Whether no rule can decide anything."""
        return not self.enforced.rules and self.shadow is None


def make_edition(document: Sequence[Any], lists: Lists, version: int = 0) -> Edition:
    """Compile a document whose sets carry their mode. Raises PolicyError."""
    kept = {name: tuple(members) for name, members in lists.items()}
    wanted: dict[str, list[Any]] = {mode: [] for mode in MODES}
    for policy_set in document:
        mode = policy_set.get("mode", "enforce") if isinstance(policy_set, dict) else "enforce"
        wanted[mode if mode in MODES else "enforce"].append(policy_set)
    enforced = compile_sets(read_document(wanted["enforce"], kept), version)
    shadow = None
    if wanted["shadow"]:
        both = [*wanted["enforce"], *wanted["shadow"]]
        shadow = compile_sets(read_document(both, kept), version)
    used = enforced.attributes | (shadow.attributes if shadow else frozenset())
    return Edition(
        version=version,
        enforced=enforced,
        shadow=shadow,
        counted=frozenset(n for n in used if n == ALLOCATIONS or n.startswith("rate.")),
        fetched=used & FETCHED,
        uses_clock=bool(used & CLOCK),
        uses_direction="direction" in used,
    )


NO_EDITION = make_edition([], {})
