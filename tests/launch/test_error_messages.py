"""One line that names the cause, out of whatever a program wrote last."""

import json
from pathlib import Path

import pytest

from msgnode.launch.error_messages import cause_in, without_password


def said(level: str, message: str, trace: str = "") -> str:
    return json.dumps({"level": level, "message": message, "trace": trace})


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ([], ""),
        (["", "  "], ""),
        (["Traceback (most recent call last):", "OSError: no room"], "OSError: no room"),
        ([said("INFO", "one"), said("INFO", "two")], "two"),
        ([said("ERROR", "it broke"), said("INFO", "bye")], "it broke"),
        ([said("CRITICAL", "it broke", "Trace\n  x\nno room")], "it broke: no room"),
        ([said("ERROR", "first"), said("ERROR", "second"), "plain"], "second"),
        (["[1, 2]", '{"level": 1}', "null"], "null"),
    ],
)
def test_the_last_error_counts_and_else_the_last_line(
    tmp_path: Path, lines: list[str], cause: str
) -> None:
    log = tmp_path / "node.log"
    log.write_text("\n".join(lines))
    assert cause_in(log, 0) == cause


def test_an_earlier_run_does_not_count(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    log.write_text("old fault\n")
    assert cause_in(log, log.stat().st_size) == ""


def test_a_rotated_log_is_read_from_its_start(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    log.write_text("new fault\n")
    assert cause_in(log, 1_000_000) == "new fault"


def test_a_missing_log_says_nothing(tmp_path: Path) -> None:
    assert cause_in(tmp_path / "none.log", 0) == ""


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://:secret@localhost:6379/0", "redis://:…@localhost:6379/0"),
        ("postgres://node:a%40b@db/node", "postgres://node:…@db/node"),
    ],
)
def test_a_password_is_not_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown
