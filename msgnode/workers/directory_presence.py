"""Tracks whether this worker's names are in the directory, as far as it knows."""

from __future__ import annotations

from time import monotonic

LOOK_INTERVAL = 1.0
"""Seconds between two checks."""


class DirectoryPresence:
    """One instance per worker; whoever checks notes the result.

    Args:
        timeout: seconds for which a check counts.
    """

    def __init__(self, timeout: float) -> None:
        self._seconds = max(timeout, 3 * LOOK_INTERVAL)
        self._filled_at = monotonic()

    @property
    def is_filled(self) -> bool:
        """Whether this worker's names were in the directory at the last check, which is recent."""
        return monotonic() - self._filled_at < self._seconds

    def note_filled(self) -> bool:
        """Note that they are there; return whether that was not so or not known before."""
        now = monotonic()
        was_away = now - self._filled_at > 2 * LOOK_INTERVAL
        self._filled_at = now
        return was_away
