"""Evaluates the operators' alarm rules on the node's figures.

Rules
- One worker does it for all: the one that has the claim (storage/claims.py).
- Nothing is evaluated while there are no rules.
- A figure of all workers together is unknown while one of them does not answer.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Protocol

from django.db import DatabaseError

from msgnode.bus.periodic import every
from msgnode.bus.writing import Call, Writer
from msgnode.core.errors import NodeError
from msgnode.models import Alarm, AlarmRule
from msgnode.storage import notices
from msgnode.storage.database_threads import in_any_thread

from .samples import Sample, of_all_workers, rates
from .thresholds import FIGURES, Rule, Threshold

log = logging.getLogger(__name__)

CHANGED = "alarm rules.changed"
EVERY = 2.0
LOOK_EVERY = 10.0
"""Seconds between two queries of figures from the database."""
AGAIN = 60.0
"""Seconds after which the rules are read again in any case."""

Gather = Callable[[], Awaitable[tuple[list[Sample], bool]]]
"""The last sample of each worker that answered, and whether all did."""


class Claim(Protocol):
    """The right to look, which one worker has."""

    async def take(self) -> bool:
        """Whether this worker has it, from now on or still."""
        ...


class AlarmRules:
    """One per worker.

    Args:
        gather: queries the workers.
        claim: the claim of the one evaluating worker.
        writer: writes alarms and notices.
        bounds: bucket bounds of latency histograms.
        folder: the data directory, whose disk is measured.
    """

    def __init__(
        self,
        gather: Gather,
        claim: Claim,
        writer: Writer,
        bounds: Sequence[float],
        folder: Path,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._gather = gather
        self._claim = claim
        self._writer = writer
        self._bounds = bounds
        self._folder = folder
        self._clock = clock
        self._thresholds: list[Threshold] = []
        self._read_at: float | None = None
        self._looked_at = float("-inf")
        self._alarms: float | None = None

    def changed(self, payload: object = None) -> None:
        """The rules have changed: read them again."""
        self._read_at = None

    async def run(self) -> None:
        """Runs until cancelled."""
        await every(EVERY, self.look, "alarm rules")

    async def look(self) -> None:
        """Look once."""
        if not await self._looks():
            self.changed()  # whoever looked meanwhile has raised and cleared
            return
        now = self._clock()
        if self._read_at is None or now - self._read_at > AGAIN:
            await self._read(now)
        if not self._thresholds:
            return
        samples, is_whole = await self._gather()
        figures = await self._figures(samples, is_whole, now)
        for threshold in self._thresholds:
            value = figures.get(threshold.rule.figure)
            change = threshold.see(value, now)
            if change is not None and value is not None:
                self._tell(threshold, change, value)

    async def _looks(self) -> bool:
        """Whether this worker evaluates; none does while the database is out of reach."""
        try:
            return await self._claim.take()
        except NodeError:
            return False

    def _tell(self, threshold: Threshold, is_raised: bool, value: float) -> None:
        rule = threshold.rule
        if is_raised:
            text = threshold.text(value)
            log.warning("Alarm: %s", text, extra={"kind": notices.KIND})
            self._writer.submit(Call(partial(notices.raise_for, rule.id, text)))
        else:
            text = f"Over: {FIGURES[rule.figure].title} is {value:,.4g}."
            self._writer.submit(Call(partial(notices.clear_for, rule.id, text)))

    async def _read(self, now: float) -> None:
        try:
            rules, standing = await in_any_thread(_rules)
        except DatabaseError as error:
            log.warning("The alarm rules cannot be read: %s", type(error).__name__)
            return
        known = {each.rule: each for each in self._thresholds}
        thresholds = []
        for rule in rules:
            threshold = known.get(rule) or Threshold(rule, rule.name in standing)
            threshold.stands = rule.name in standing
            thresholds.append(threshold)
        self._thresholds = thresholds
        self._read_at = now

    async def _figures(
        self, samples: list[Sample], is_whole: bool, now: float
    ) -> dict[str, float | None]:
        found: dict[str, float | None] = {"workers": float(len(samples))}
        if samples and is_whole:
            told = rates(of_all_workers(samples), self._bounds)
            found.update({**told, "memory": told["memory"] / 1e6})
        if now - self._looked_at >= LOOK_EVERY:
            self._looked_at = now
            self._alarms = await in_any_thread(_standing_alarms)
        found["alarms"] = self._alarms
        found["disk"] = shutil.disk_usage(self._folder).free / 1e6
        return found


def _rules() -> tuple[list[Rule], set[str]]:
    """The enabled rules, and the names of those whose alarm stands. Blocks."""
    rows = AlarmRule.objects.filter(is_enabled=True, figure__in=list(FIGURES))
    rules = [
        Rule(row.pk, row.name, row.figure, row.is_below, row.limit, row.seconds, row.note)
        for row in rows
    ]
    notices.clear_others({rule.name for rule in rules})
    return rules, notices.standing()


def _standing_alarms() -> float | None:
    """The number of standing alarms other than rules'; None if unknown. Blocks."""
    try:
        own = (notices.KIND, notices.FAILED)
        return float(Alarm.objects.filter(cleared_at=None).exclude(kind__in=own).count())
    except DatabaseError:
        return None
