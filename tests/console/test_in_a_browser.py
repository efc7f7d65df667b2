"""An operator in a real browser, beside a newcomer's page that talks through the same node."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import waiting
from tests.accessibility import axe_faults
from tests.node import Node

from . import browser, window

pytestmark = pytest.mark.long

LIMIT = 30.0
MESSAGES = "document.querySelector('[data-figure=messages]').textContent"
BUSIEST = "document.querySelector('[data-top=talkers]').textContent"


@pytest.fixture(scope="module")
def operated_node(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Node]:
    with browser.operated_node(tmp_path_factory.mktemp("operated"), template) as node:
        yield node


@pytest.fixture
def newcomer(operated_node: Node, chromium_window: Any) -> Iterator[Callable[[], Any]]:
    """Opens the newcomer's page, whose example runs then; closed at the end, if not before."""
    opened: list[Any] = []

    def come() -> Any:
        page = chromium_window.new_page()
        opened.append(page)
        page.set_default_timeout(20_000)
        page.goto(f"http://127.0.0.1:{operated_node.port}/")
        page.wait_for_selector("#answer-text:enabled")
        return page

    yield come
    for page in opened:
        page.close()


@pytest.fixture
def operator_page(operated_node: Node, chromium_window: Any) -> Iterator[Any]:
    page = window.operator_page(chromium_window, operated_node.port)
    yield page
    page.close()


def test_a_list_follows_changes_and_keeps_what_the_operator_has_begun(
    newcomer: Callable[[], Any], operator_page: Any
) -> None:
    first = newcomer()
    operator_page.goto("/admin/msgnode/session/?q=runtime://localhost/")
    alices = operator_page.locator("#result_list tbody", has_text="/alice").first
    box = alices.locator("input.action-select")
    box.check()
    box.focus()
    chosen = box.get_attribute("value")

    second = newcomer()
    rows = "document.querySelectorAll('#result_list > tbody').length"
    waiting.in_page(operator_page, f"{rows} >= 4")
    kept = operator_page.locator(f"input.action-select[value='{chosen}']")
    assert kept.is_checked()
    assert kept.evaluate("each => each === document.activeElement")

    operator_page.get_by_role("button", name="Pause", exact=True).click()
    operator_page.get_by_text("paused", exact=True).wait_for()
    operator_page.get_by_role("button", name="Go on", exact=True).click()
    second.close()
    first.close()  # its runtimes close their sessions, which leave the list of those that live
    operator_page.wait_for_selector("#result_list .console-gone")
    assert (
        "no longer in the list" in operator_page.locator(".console-live [role=status]").inner_text()
    )
    assert operator_page.faults == []


def test_a_list_can_be_read_and_a_ban_made_without_javascript(
    operator_page: Any, chromium_window: Any
) -> None:
    kept = operator_page.context.storage_state()
    context = chromium_window.new_context(java_script_enabled=False, storage_state=kept)
    page = context.new_page()
    page.set_default_timeout(20_000)
    page.goto(operator_page.evaluate("new URL('/admin/msgnode/ban/add/', location).href"))
    page.fill("[name=value]", "runtime://localhost/" + "x" * 220)
    page.fill("[name=reason]", "spam")
    page.get_by_role("button", name="Save", exact=True).click()
    cell = page.locator("#result_list tbody .field-value", has_text="x" * 220)
    assert cell.bounding_box()["width"] < 600, "a long text leaves room for the other columns"
    context.close()


def test_the_overview_moves_and_says_when_it_is_cut_off(
    newcomer: Callable[[], Any], operator_page: Any
) -> None:
    page = newcomer()
    operator_page.goto("/admin/")
    operator_page.wait_for_selector("#live[data-state=live]")
    operator_page.wait_for_selector("#charts-state:empty", state="attached")
    operator_page.wait_for_selector("canvas[data-chart=traffic][data-points]")

    def moves() -> bool:
        """A word at each look: the figure is that of the last seconds."""
        page.fill("#note-title", f"Seen on the overview {next(words)}")
        seen, busiest = operator_page.evaluate(f"[{MESSAGES}, {BUSIEST}]")
        assert seen == "0/s" or "No messages" not in busiest
        return bool(seen != "0/s")

    words = itertools.count()
    waiting.until(moves, LIMIT)
    operator_page.wait_for_selector("[data-top=talkers] a")
    where = operator_page.locator("[data-top=talkers] a").first.get_attribute("href")
    operator_page.locator("[data-length=day]").click()
    operator_page.wait_for_selector("[data-length=day][aria-pressed=true]")
    waiting.in_page(
        operator_page, "document.querySelector('#charts-state').textContent !== 'loading…'"
    )
    assert axe_faults(operator_page, "serious", "critical") == []
    page.close()

    form = "new FormData(document.querySelector('#logout-form'))"
    operator_page.evaluate(f"fetch('/admin/logout/', {{ method: 'POST', body: {form} }})")
    operator_page.wait_for_selector("#live-state:has-text('logged out')")
    assert operator_page.get_attribute("#live", "data-state") == "lost"
    assert "/admin/msgnode/session/" in where
    assert operator_page.faults == []


def test_the_page_of_traces_stays_small_and_counts_what_was_left_out_since_it_was_opened(
    operator_page: Any,
) -> None:
    """A worker that does not answer for a second, or begins anew, is not counted as a whole."""
    sockets: list[Any] = []
    operator_page.route_web_socket("**/admin/live/traces/**", lambda each: sockets.append(each))
    operator_page.goto("/admin/traces/")

    def tell(first: int = 0, number: int = 0, **untraced: int) -> None:
        told = [trace(n) for n in range(first, first + number)]
        sockets[0].send(json.dumps({"type": "now", "traces": told, "untraced": untraced}))

    waiting.until(lambda: operator_page.wait_for_timeout(1) or sockets, LIMIT)
    tell(0, 200, a=5_000, b=7_000)
    tell(200, 150, a=5_010)
    tell(b=7_020, a=3)
    waiting.in_page(operator_page, "document.body.textContent.includes(' 33 messages since')")
    state = operator_page.locator("#traces-state")
    assert state.inner_text().startswith("300 traces, the newest 100")
    rows = operator_page.locator("#traces-rows tr")
    assert rows.count() == 100
    assert "to 349" in rows.first.inner_text()
    rows.nth(50).locator("button").click()
    assert "to 299" in operator_page.inner_text("#trace-title")
    operator_page.fill("#traces-search", "to 60")
    waiting.in_page(operator_page, "document.querySelectorAll('#traces-rows tr').length === 1")
    operator_page.fill("#traces-search", "")
    waiting.in_page(operator_page, "document.querySelectorAll('#traces-rows tr').length === 100")
    assert operator_page.faults == []


def trace(number: int) -> dict[str, Any]:
    """A trace as a worker tells it."""
    span = {"id": f"{number:016x}", "name": "update", "at": number, "seconds": 0.001, "facts": {}}
    return {
        "trace": f"{number:032x}", "why": "watched", "type": "update", "sender": "me", "rule": "",
        "to": f"to {number}", "outcome": "delivered", "code": 200, "seconds": 0.001, "at": number,
        "id": "1", "body": {}, "worker": "a", "user": "", "session": "", "spans": [span],
    }  # fmt: skip
