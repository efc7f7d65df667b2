"""Raises alarms when contained failures (core/faults.py) repeat."""

from __future__ import annotations

from collections.abc import Callable

from msgnode.bus.periodic import every
from msgnode.core.faults import REPEATS, WINDOW, Faults

KIND = "faults-repeat"
_EVERY = 5.0


class FaultAlarms:
    """Checks the counts every few seconds.

    An alarm stands, for one part of one worker, while its failures repeat.
    """

    def __init__(
        self,
        faults: Faults,
        worker: str,
        raise_alarm: Callable[[str, str, str], None],
        clear_alarm: Callable[[str, str], None],
    ) -> None:
        self._faults = faults
        self._worker = worker
        self._raise_alarm = raise_alarm
        self._clear_alarm = clear_alarm
        self._standing: dict[str, int] = {}

    async def run(self) -> None:
        """Runs until cancelled."""
        await every(_EVERY, self.look, "fault alarms")

    def look(self) -> None:
        """Raise what repeats, and clear what does so no longer."""
        repeating = self._faults.repeating()
        for part, number in repeating.items():
            if self._standing.get(part) != number:
                text = (
                    f"{REPEATS} failures or more within {WINDOW:g} s were each kept to one {part} "
                    f"({number} since the start); the log has the first."
                )
                self._raise_alarm(KIND, self._subject(part), text)
        for part in self._standing.keys() - repeating.keys():
            self._clear_alarm(KIND, self._subject(part))
        self._standing = repeating

    def _subject(self, part: str) -> str:
        return f"{self._worker} {part}"
