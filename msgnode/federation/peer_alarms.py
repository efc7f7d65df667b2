"""The alarms that a peer raises while it is served, and clears when it is well again."""

from __future__ import annotations

from collections.abc import Callable

from .peer_link import LIVE, PeerLink

FAILING_AFTER = 5
"""Ends of a sandbox in a row after which an alarm stands."""
FAILING_ALARM = "stub-failing"


class PeerAlarms:
    """One instance per worker. `raise_alarm`, `clear_alarm`: of the node."""

    def __init__(
        self,
        raise_alarm: Callable[[str, str, str], None],
        clear_alarm: Callable[[str, str], None],
    ) -> None:
        self._raise_alarm = raise_alarm
        self._clear_alarm = clear_alarm
        self._failing: set[str] = set()

    def look(self, link: PeerLink) -> None:
        """Raise, or clear, what is to be said of a peer."""
        domain = link.peer.domain
        if link.failures_in_a_row >= FAILING_AFTER and domain not in self._failing:
            self._failing.add(domain)
            text = f"The stub of {domain} has failed {link.failures_in_a_row} times in a row: "
            self._raise_alarm(FAILING_ALARM, domain, text + link.last_error)
        elif link.state == LIVE and domain in self._failing:
            self._failing.discard(domain)
            self._clear_alarm(FAILING_ALARM, domain)
