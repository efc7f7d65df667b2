"""Snapshots: published versions, compiled and ready to decide.

Rules
- The mode of a set: `enforce` decides; `shadow` only logs what it would have decided together with
  the enforced ones; `off` is not compiled.
- A snapshot is completed before one assignment puts it in force, so nobody sees a partial one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from policies.engine.documents import MODES, read_document
from policies.engine.language import Lists, PolicySet, Problem
from policies.engine.pdp import Snapshot, compile_sets

from .pip import ALLOCATIONS, FETCHED

CLOCK = frozenset({"time", "date", "weekday"})


@dataclass(frozen=True, slots=True)
class PolicySnapshot:
    """The policies in force.

    shadow     the decision if the sets in shadow mode were enforced too, None if there are none
    counted    attributes that count messages
    fetched    attributes that must be fetched before a decision
    sets       the enforced sets, as they were read
    """

    version: int
    enforced: Snapshot
    shadow: Snapshot | None
    counted: frozenset[str]
    fetched: frozenset[str]
    uses_clock: bool
    uses_direction: bool
    sets: tuple[PolicySet, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no rule can decide anything."""
        return not self.enforced.rules and self.shadow is None


def make_snapshot(
    document: Sequence[Any],
    lists: Lists,
    version: int = 0,
    warnings: list[Problem] | None = None,
) -> PolicySnapshot:
    """Compile a document whose sets carry their mode; `warnings` as in `read_document`.

    Raises:
        PolicyError: the document is refused.
    """
    modes = [_mode(each) for each in document]
    # Errors in a set that is off do not matter, but it keeps its position, for the others' paths.
    seen = [
        {"id": f"(off, {number})"} if mode == "off" else each
        for number, (each, mode) in enumerate(zip(document, modes, strict=True))
    ]
    sets = list(zip(modes, read_document(seen, lists, warnings=warnings), strict=True))
    in_force = tuple(each for mode, each in sets if mode == "enforce")
    enforced = compile_sets(in_force, version)
    shadow = None
    if "shadow" in modes:
        both = [each for mode, each in sets if mode != "off"]
        shadow = compile_sets(both, version)
    used = enforced.attributes | (shadow.attributes if shadow else frozenset())
    return PolicySnapshot(
        version=version,
        enforced=enforced,
        shadow=shadow,
        counted=frozenset(n for n in used if n == ALLOCATIONS or n.startswith("rate.")),
        fetched=used & FETCHED,
        uses_clock=bool(used & CLOCK),
        uses_direction="direction" in used,
        sets=in_force,
    )


def _mode(policy_set: Any) -> str:
    mode = policy_set.get("mode", "enforce") if isinstance(policy_set, dict) else "enforce"
    return mode if mode in MODES else "enforce"


EMPTY_SNAPSHOT = make_snapshot([], {})
