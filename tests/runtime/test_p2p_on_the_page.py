"""The page `/`: two browsers that talk directly, while the node's counter stands still."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.accessibility import axe_faults
from tests.node import Node

from .p2p_pages import browser, count_of, until

__all__ = ["browser"]
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("p2p")]

LIMIT = 60_000  # ms


@contextmanager
def visit(browser: Any, node: Node, hash_: str = "") -> Iterator[Any]:
    """The page in a browser of its own; its errors fail the test."""
    context = browser.new_context(permissions=["microphone"])
    faults: list[str] = []
    try:
        page = context.new_page()
        page.set_default_timeout(LIMIT)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(f"http://127.0.0.1:{node.port}/{hash_}")
        page.wait_for_selector("#answer-text:enabled")  # the page's first example says no more
        yield page
    finally:
        context.close()
    assert faults == []


def test_two_browsers_see_direct_light_up_and_the_nodes_counter_stands_still(
    browser: Any, start_node: Callable[..., Node]
) -> None:
    from playwright.sync_api import expect

    node = start_node()
    with visit(browser, node) as one:
        one.click("#direct-start:enabled")
        link = one.wait_for_selector("#direct-link:visible").get_attribute("href")
        with visit(browser, node, f"#{link.partition('#')[2]}") as other:
            pages = [one, other]
            for page in pages:
                expect(page.locator("#direct-way")).to_have_text("direct", timeout=LIMIT)
            expect(one.locator("#direct-lines")).to_contain_text("Hello. · through the node")
            both = ((one, other), (other, one))
            for here, there in both:  # a channel that is open may still wait for its fence
                until(lambda: say(here, there, f"Ready at {time.monotonic()}?"))  # noqa: B023
            before = count_of(node)
            assert all(say(*pair, f"Word {number} said") for number in range(5) for pair in both)
            assert count_of(node) == before
            for page in pages:
                assert axe_faults(page) == []
        # The other one has gone: the node is the way again.
        expect(one.locator("#direct-way")).to_have_text("through the node", timeout=LIMIT)


def say(here: Any, there: Any, text: str) -> bool:
    """Type a line, and wait until the other side shows it; whether it came directly."""
    here.fill("#direct-text", text)
    here.click("#direct-line button")
    there.wait_for_selector(f"#direct-lines li:has-text('The other: {text}')")
    here.wait_for_selector(f"#direct-lines li:has-text('You: {text}')")
    shown = there.locator(f"#direct-lines li:has-text('The other: {text}')").last.inner_text()
    return bool(shown.endswith("· direct"))


def test_a_link_whose_browser_is_gone_is_named(browser: Any, node: Node) -> None:
    with visit(browser, node, "#direct=runtime%3A%2F%2Flocalhost%2Fgone%2Fp2phandler%2F1") as page:
        page.wait_for_selector("#direct-says:has-text('Nobody waits there any more')")
        page.wait_for_selector("#direct-start:enabled")
