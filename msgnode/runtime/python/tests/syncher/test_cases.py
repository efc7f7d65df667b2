"""The cases of data objects that both languages share; R numbers are those of
docs/reference/runtime.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_clock import settled

from .play import Play

CASES = Path(__file__).parents[3] / "js" / "tests" / "syncher-cases.jsonl"


def cases() -> list[Any]:
    """The cases, once for each of the values that stand for "$"."""
    return [
        pytest.param(json.loads(line.replace('"$"', json.dumps(value))), id=f"{number}")
        for number, line in enumerate(CASES.read_text(encoding="utf-8").splitlines())
        for value in json.loads(line).get("each", [None])
    ]


@pytest.mark.parametrize("case", cases())
async def test_data_objects(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(monkeypatch, retries_late=case.get("retriesLate", False))
    await play.steps(case["steps"])
    play.stop()
    await settled()
