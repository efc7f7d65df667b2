"""Waiting in tests: what is waited for on a page is asked from outside it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests import waiting
from tests.console import window
from tests.node import ROOT

FORBIDDEN = "wait_for_function"
POLICY = "default-src 'none'; script-src 'none'"


def calls(source: str, name: str) -> Iterator[int]:
    """The lines on which a method of this name is called."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr == name:
            yield node.lineno


def test_a_call_is_found_in_a_source_and_a_word_in_a_text_is_not() -> None:
    assert list(calls(f"page.{FORBIDDEN}('a')\nwait = '{FORBIDDEN}'", FORBIDDEN)) == [1]


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


@pytest.mark.long
def test_a_page_whose_policy_forbids_evaluation_can_be_waited_for(chromium: str) -> None:
    from playwright.sync_api import Error

    with window.opened(chromium) as chromium_window:
        page = chromium_window.new_page()
        page.route(
            "**/*",
            lambda route: route.fulfill(
                body="<title>before</title>", content_type="text/html",
                headers={"Content-Security-Policy": POLICY},
            ),
        )  # fmt: skip
        page.goto("http://node.invalid/")
        page.evaluate("setTimeout(() => { document.title = 'after' }, 400)")
        waiting.in_page(page, "document.title === 'after'")
        page.evaluate("setTimeout(() => { document.title = 'later' }, 400)")
        with pytest.raises(Error, match="unsafe-eval|Content Security Policy"):
            page.wait_for_function("document.title === 'later'")
        page.close()
