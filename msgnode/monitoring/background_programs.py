"""Raises an alarm for Celery's worker or beat when `manage.py run` says that it does not run.

`manage.py run` judges them (launch/background.py) and writes `background.json`; under another
supervisor there is no such file, and that supervisor judges.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgnode.bus.periodic import every

KIND = "background-stopped"
NAMES = ("beat", "worker")
MARK_SECONDS = 5.0
"""Seconds between two signs of life of a program."""
_EVERY = 1.0


class BackgroundPrograms:
    """One instance per worker.

    Args:
        data_dir: the directory of the file.
        raise_alarm: raises an alarm by kind, subject and text.
        clear_alarm: clears one by kind and subject.

    Attributes:
        all_run: whether all of them run, as far as it is known.
    """

    def __init__(
        self,
        data_dir: Path,
        raise_alarm: Callable[[str, str, str], None],
        clear_alarm: Callable[[str, str], None],
    ) -> None:
        self.all_run = True
        self._file = data_dir / "background.json"
        self._raise_alarm = raise_alarm
        self._clear_alarm = clear_alarm
        self._standing: dict[str, str | None] = dict.fromkeys(NAMES)  # None: not known yet

    async def run(self) -> None:
        """Runs until cancelled."""
        await every(_EVERY, self.look, "background programs", is_first_at_once=True)

    def look(self) -> None:
        """Read the file; raise what is new, and clear what is over."""
        absent = self._absent()
        self.all_run = not absent
        for name, standing in self._standing.items():
            problem = str(absent.get(name) or "")
            if name in absent and not problem and standing is None:
                continue  # it is starting: what an earlier node has said is neither so nor not
            if problem and problem != standing:
                self._raise_alarm(KIND, name, problem)
            elif not problem and standing != "":
                self._clear_alarm(KIND, name)
            self._standing[name] = problem

    def _absent(self) -> dict[str, Any]:
        """What does not run, by name, with the reason if it is not just starting."""
        try:
            said = json.loads(self._file.read_bytes())
            if said["supervisord"] != os.getppid():
                return {}  # of another node
            return dict(said["absent"])
        except (OSError, ValueError, KeyError, TypeError):
            return {}


def mark(data_dir: Path, name: str) -> None:
    """Renew the sign of life of this process, by which `manage.py run` judges it.

    Args:
        data_dir: the directory of the marks.
        name: one of NAMES.
    """
    with suppress(OSError):  # a full disk must not end it
        (data_dir / f"{name}.started").write_text(str(os.getpid()))
