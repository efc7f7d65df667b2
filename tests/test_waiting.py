"""Waiting in tests: what is waited for on a page is asked from outside it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.node import ROOT

FORBIDDEN = "wait_for_function"


def calls(source: str, name: str) -> Iterator[int]:
    """The lines on which a method of this name is called."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr == name:
            yield node.lineno


def test_no_test_waits_by_evaluating_text_inside_a_page() -> None:
    """The pages' policies forbid it at the second look: such a test passes on a fast machine only.
    `waiting.in_page` asks from outside."""
    files = [path for top in ("tests", "bench") for path in (ROOT / top).rglob("*.py")]
    assert len(files) > 300
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in files
        if FORBIDDEN in (source := path.read_text(encoding="utf-8"))
        for line in calls(source, FORBIDDEN)
        if path.name != "test_waiting.py"
    ]
    assert found == []
