"""The cases of data objects that both languages share; R numbers are those of
docs/reference/runtime.md."""

from __future__ import annotations

from typing import Any

import pytest
from fake_clock import settled
from shared_cases import cases

from .play import Play


@pytest.mark.parametrize("case", cases("syncher"))
async def test_data_objects(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(monkeypatch, retries_late=case.get("retriesLate", False))
    await play.steps(case["steps"])
    play.stop()
    await settled()
