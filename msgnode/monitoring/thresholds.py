"""Decides whether a figure has been beyond a limit for long enough. Pure: no clock, no I/O.

An alarm is raised once the figure has been beyond the limit for `seconds`, and cleared once it has
not been for as long (at least SETTLED), so that a figure around its limit does not raise one every
second. Times without a known figure change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

SETTLED = 5.0


class Figure(NamedTuple):
    """A figure of the node: its name for people, and the unit it is limited in."""

    title: str
    unit: str


FIGURES: Mapping[str, Figure] = {
    "messages": Figure("messages in", "a second"),
    "copies": Figure("messages out", "a second"),
    "bytes_in": Figure("bytes in", "a second"),
    "bytes_out": Figure("bytes out", "a second"),
    "refused": Figure("messages refused", "a second"),
    "undeliverable": Figure("messages undeliverable", "a second"),
    "p50": Figure("latency inside the node, p50", "µs"),
    "p99": Figure("latency inside the node, p99", "µs"),
    "cpu": Figure("processor of all workers", "% of one core"),
    "memory": Figure("memory of all workers", "MB"),
    "sockets": Figure("open sockets", ""),
    "sessions": Figure("sessions", ""),
    "waiting": Figure("bytes that wait for readers", ""),
    "workers": Figure("workers that are heard of", ""),
    "disk": Figure("free space of the data directory", "MB"),
    "alarms": Figure("alarms that stand, of the node's own", ""),
}


class Rule(NamedTuple):
    """An alarm rule as it is evaluated."""

    id: int
    name: str
    figure: str
    is_below: bool
    limit: float
    seconds: float
    note: str


class Threshold:
    """One rule over time.

    Args:
        rule: the rule.
        stands: whether its alarm already stands.
    """

    def __init__(self, rule: Rule, stands: bool) -> None:
        self.rule = rule
        self.stands = stands
        self._since: float | None = None  # when the figure came to be as the alarm is not

    def see(self, value: float | None, now: float) -> bool | None:
        """Take what the figure is now.

        Returns:
            True if the alarm is raised by it, False if it is over, None if nothing changes.
        """
        if value is None:
            self._since = None
            return None
        rule = self.rule
        is_beyond = value < rule.limit if rule.is_below else value > rule.limit
        if is_beyond == self.stands:
            self._since = None
            return None
        if self._since is None:
            self._since = now
        if now - self._since < (max(rule.seconds, SETTLED) if self.stands else rule.seconds):
            return None
        self._since = None
        self.stands = is_beyond
        return is_beyond

    def text(self, value: float) -> str:
        """The alarm in words."""
        rule = self.rule
        title, unit = FIGURES[rule.figure]
        side = "below" if rule.is_below else "above"
        said = f"{title}: {number(value)}, {side} {number(rule.limit)} {unit}".rstrip()
        return f"{said} for {rule.seconds:g} s.{' ' if rule.note else ''}{rule.note}"


def number(value: float) -> str:
    """A figure or its limit, for people."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.4g}"
