"""A browser for the tests of a module.

Playwright holds the thread's event loop while it is open: no module that uses it has async tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    """The system's Chromium, headless."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=chromium, args=FLAGS)
        yield opened
        opened.close()
