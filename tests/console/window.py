"""A real browser, and the page of an operator who has logged in there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .browser import PASSWORD

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


EXPECTED_WITHIN = 30_000  # ms; of its own playwright gives five seconds


@contextmanager
def opened(chromium: str) -> Iterator[Any]:
    """Chromium of this path, without a screen."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=EXPECTED_WITHIN)
    with sync_playwright() as play:
        window = play.chromium.launch(executable_path=chromium, args=FLAGS)
        yield window
        window.close()


def operator_page(window: Any, port: int, password: str = PASSWORD) -> Any:
    """The console's first page. Faults of scripts are put down in its `faults`."""
    page = window.new_page(base_url=f"http://127.0.0.1:{port}")
    page.set_default_timeout(20_000)
    page.faults = []
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.goto("/admin/login/")
    page.fill("[name=username]", "operator")
    page.fill("[name=password]", password)
    page.press("[name=password]", "Enter")
    page.wait_for_url("**/admin/")
    return page
