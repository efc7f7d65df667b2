"""The ledgers there are, by what an entry of each stands for: hours, days and months. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from spark.jobs import periods
from spark.jobs.periods import Kind


@dataclass(frozen=True, slots=True)
class Tier:
    """What one entry stands for, and where it is written: a file of this name in this folder."""

    folder: str
    file: str
    key: str
    kind: Kind

    def floor(self, moment: datetime) -> datetime:
        """The start of what the moment lies in."""
        return periods.start_of(self.kind, moment)

    def after(self, start: datetime) -> datetime:
        """The start of what follows."""
        return periods.after(self.kind, start)

    @property
    def unit(self) -> str:
        """What SQL calls it."""
        return _UNITS[self.kind]


_UNITS = {Kind.HOURLY: "hour", Kind.DAILY: "day", Kind.MONTHLY: "month"}
HOURS = Tier("ledger", "%Y-%m-%d", "%H", Kind.HOURLY)
DAYS = Tier("days", "%Y-%m", "%d", Kind.DAILY)
MONTHS = Tier("months", "%Y", "%m", Kind.MONTHLY)
TIERS = (HOURS, DAYS, MONTHS)
