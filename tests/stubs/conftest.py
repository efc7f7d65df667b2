"""A browser for the tests of a module.

Playwright holds the thread's event loop while it is open: no module that uses it has async tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


EXPECTED_WITHIN = 30_000  # ms; of its own playwright gives five seconds


@contextmanager
def launched(chromium: str, *flags: str) -> Iterator[Any]:
    """The system's Chromium, headless, with flags of a test's own."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=EXPECTED_WITHIN)
    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=chromium, args=[*FLAGS, *flags])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    with launched(chromium) as opened:
        yield opened
