"""Whether what this worker holds is in the directory, as far as it knows."""

from __future__ import annotations

from time import monotonic

LOOK_INTERVAL = 1.0
"""Seconds between two looks."""


class DirectoryPresence:
    """One instance per worker; who looks notes what was found.

    Args:
        timeout: seconds for which a look counts.
    """

    def __init__(self, timeout: float) -> None:
        self._seconds = max(timeout, 3 * LOOK_INTERVAL)
        self._filled_at = monotonic()

    @property
    def is_filled(self) -> bool:
        """Whether what this worker holds was in the directory, and that could be asked, lately."""
        return monotonic() - self._filled_at < self._seconds

    def note_filled(self) -> bool:
        """It is there now; whether it was not, or could not be asked for, a moment ago."""
        now = monotonic()
        was_away = now - self._filled_at > 2 * LOOK_INTERVAL
        self._filled_at = now
        return was_away
