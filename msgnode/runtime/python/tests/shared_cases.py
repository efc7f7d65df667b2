"""Cases that both languages share, in js/tests; the numbers are those of docs/reference/."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def cases(name: str, **names: str) -> list[Any]:
    """Those of a file, once for each of the values that stand for "$"; {name} stands for a text."""
    found = []
    text = (Path(__file__).parents[2] / "js" / "tests" / f"{name}-cases.jsonl").read_text("utf-8")
    for key, value in names.items():
        text = text.replace(f"{{{key}}}", value)
    for number, line in enumerate(text.splitlines()):
        for value in json.loads(line).get("each", [None]):
            case = json.loads(line.replace('"$"', json.dumps(value)))
            found.append(pytest.param(case, id=f"{number} {case['name']}"))
    return found


def like(expected: Any, found: Any) -> Any:
    """What is found, as far as it is expected: of objects only the fields that are named."""
    if not isinstance(expected, dict) or not isinstance(found, dict):
        return found
    return {key: like(value, found.get(key)) for key, value in expected.items()}
