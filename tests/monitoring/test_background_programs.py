"""What `manage.py run` says of worker and beat becomes alarms, and nothing else does."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from msgnode.monitoring.background_programs import KIND, BackgroundPrograms


class Watched:
    def __init__(self, data_dir: Path) -> None:
        self.file = data_dir / "background.json"
        self.events: list[tuple[str, ...]] = []
        self.programs = BackgroundPrograms(
            data_dir,
            lambda *alarm: self.events.append(alarm),
            lambda *alarm: self.events.append(alarm),
        )

    def say(self, absent: object, supervisord: int | None = None) -> list[tuple[str, ...]]:
        """What becomes of it when `manage.py run` writes this."""
        self.events.clear()
        parent = os.getppid() if supervisord is None else supervisord
        self.file.write_text(json.dumps({"supervisord": parent, "absent": absent}))
        self.programs.look()
        return self.events


def test_an_alarm_stands_while_one_does_not_run(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    assert watched.say({"beat": "", "worker": ""}) == []
    assert not watched.programs.all_run, "they are starting"
    assert watched.say({"beat": "beat has ended"}) == [
        (KIND, "beat", "beat has ended"),
        (KIND, "worker"),  # an earlier node may have raised it
    ]
    assert watched.say({"beat": "beat has ended"}) == []
    assert not watched.programs.all_run
    assert watched.say({}) == [(KIND, "beat")]
    assert watched.programs.all_run


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"supervisord": null, "absent": 3}'])
def test_a_file_that_says_nothing_is_none(tmp_path: Path, text: str) -> None:
    watched = Watched(tmp_path)
    watched.file.write_text(text)
    watched.programs.look()
    assert watched.programs.all_run


def test_what_the_launcher_of_another_node_has_left_is_ignored(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.say({"beat": "beat has ended"}, supervisord=1)
    assert watched.programs.all_run
    assert all(len(event) == 2 for event in watched.events), "alarms are only cleared"
