"""The alarms about a peer that is served: raised, and cleared when the peer works again."""

from __future__ import annotations

import time
from collections.abc import Callable

from .peer_link import PeerLink
from .stub_status import IDLE, LIVE

FAILING_AFTER = 5
"""Ends of a sandbox after which an alarm is raised, if it was not live for a minute in between."""
STUCK_SECONDS = 60.0
"""Seconds without a live stub after which an alarm is raised."""
WAITING_SECONDS = 5.0
"""Seconds that a message waits after which an alarm is raised, too."""
FAILING_ALARM = "stub-failing"
STUCK_ALARM = "peer-stuck"
LOOP_ALARM = "peer-loop"
SPOOF_ALARM = "peer-spoofs"
AGAIN_SECONDS = 60.0
"""Seconds after which one of these is raised again, if there was more."""


class PeerAlarms:
    """One instance per worker.

    Args:
        raise_alarm, clear_alarm: the node's alarms.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        raise_alarm: Callable[[str, str, str], None],
        clear_alarm: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._raise_alarm = raise_alarm
        self._clear_alarm = clear_alarm
        self._clock = clock
        self._raised: dict[str, set[str]] = {}  # domain -> kinds
        self._away_since: dict[str, float] = {}
        self._well: set[str] = set()
        self._counted: dict[tuple[str, str], tuple[int, float]] = {}

    def look(self, link: PeerLink) -> None:
        """Raise or clear the alarms about a peer."""
        domain = link.peer.domain
        is_live = link.state == LIVE
        now = self._clock()
        is_well = is_live or link.state == IDLE
        if is_well:
            self._away_since[domain] = now
        away = now - self._away_since.setdefault(domain, now)
        waits, oldest = len(link.exchange.queue), link.exchange.queue.oldest_seconds
        self._look_at_ours(link, now)
        is_failing = link.failures_in_a_row >= FAILING_AFTER
        if is_failing and self._is_new(FAILING_ALARM, domain):
            text = f"The stub of {domain} has failed {link.failures_in_a_row} times in a row: "
            self._raise_alarm(FAILING_ALARM, domain, text + link.last_error)
        text = ""
        if away >= STUCK_SECONDS:
            text = f"The node of {domain} has been away for a minute ({link.state}), {waits} "
            text += f"messages wait: {link.last_error}"
        elif oldest >= WAITING_SECONDS:
            why = "does not read what it is sent" if is_live else f"is away ({link.state})"
            text = f"The node of {domain} {why}: {waits} messages wait."
        if text and self._is_new(STUCK_ALARM, domain):
            self._raise_alarm(STUCK_ALARM, domain, text)
        elif not text and is_well and not is_failing and domain not in self._well:
            self._clear(domain)

    def has_no_room(self, domain: str, why: str) -> bool:
        """Note that no worker serves a peer; return whether that lasts, and an alarm was raised."""
        now = self._clock()
        away = now - self._away_since.setdefault(domain, now)
        if away < STUCK_SECONDS or not self._is_new(STUCK_ALARM, domain):
            return False
        self._raise_alarm(STUCK_ALARM, domain, f"The node of {domain} is not served. {why}")
        return True

    def served_elsewhere(self, domain: str) -> None:
        """Note that another worker serves a peer, and raises its alarms."""
        self._raised.pop(domain, None)
        self._away_since.pop(domain, None)

    def _look_at_ours(self, link: PeerLink, now: float) -> None:
        """Raise alarms about messages of a peer as this domain; only a person clears them."""
        domain, exchange = link.peer.domain, link.exchange
        if self._is_more(LOOP_ALARM, domain, exchange.returned, now):
            text = f"{domain} sends back what this node has sent there."
            self._raise_alarm(LOOP_ALARM, domain, text)
        if self._is_more(SPOOF_ALARM, domain, exchange.spoofed, now):
            text = f"{domain} speaks as somebody of this domain, or has: {link.last_error}"
            self._raise_alarm(SPOOF_ALARM, domain, text)

    def _is_more(self, kind: str, domain: str, count: int, now: float) -> bool:
        """Whether there is something new to report, and the last report is not recent."""
        told, at = self._counted.get((domain, kind), (0, now - AGAIN_SECONDS))
        if count <= told or now - at < AGAIN_SECONDS:
            return False
        self._counted[domain, kind] = (count, now)
        return True

    def forget(self, domain: str) -> None:
        """Forget a peer that is no longer served here."""
        self._clear(domain)
        self._well.discard(domain)
        self._away_since.pop(domain, None)
        for kind in (LOOP_ALARM, SPOOF_ALARM):
            self._counted.pop((domain, kind), None)

    def _is_new(self, kind: str, domain: str) -> bool:
        """Whether this alarm is not raised yet; it is noted as raised."""
        self._well.discard(domain)
        raised = self._raised.setdefault(domain, set())
        if kind in raised:
            return False
        raised.add(kind)
        return True

    def _clear(self, domain: str) -> None:
        """Clear all alarms, including those of the worker that served it before."""
        self._well.add(domain)
        self._raised.pop(domain, None)
        for kind in (FAILING_ALARM, STUCK_ALARM):
            self._clear_alarm(kind, domain)
