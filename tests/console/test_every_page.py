"""Every page that the menu leads to, and one row of each list: wide and narrow, light and dark.

axe finds no fault, nothing is wider than the window, no script fails, and nothing is asked for that
the page's own policy forbids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from msgnode.settings.console import unfold
from tests.accessibility import axe_faults
from tests.node import Node

from . import window
from .browser import operated_node
from .traffic import talking

pytestmark = pytest.mark.long

BY_OTHERS = "/api/docs"  # drf-spectacular's page
MENU = sorted(
    {
        str(page["link"])
        for group in unfold("localhost")["SIDEBAR"]["navigation"]
        for page in group["items"]
    }
    - {BY_OTHERS}
)
BESIDE = (
    "/", "/problems/", "/admin/msgnode/ban/add/", "/admin/msgnode/alarmrule/add/",
    "/admin/msgnode/mqtttopic/add/", "/admin/msgnode/apikey/add/", "/admin/policies/policyset/add/",
    "/admin/policies/rule/add/", "/admin/qos/customer/add/", "/admin/qos/turnserver/add/",
)  # fmt: skip
WIDER = """
() => {
  const room = document.documentElement.clientWidth;
  if (document.scrollingElement.scrollWidth <= room + 1) return "";
  const wide = [...document.querySelectorAll("main *, form *")].filter(
    (each) => each.getBoundingClientRect().right > room + 1 && !each.closest(".console-scroll"));
  const named = wide.slice(-1).map((each) => each.outerHTML.slice(0, 200));
  return `${document.scrollingElement.scrollWidth} > ${room}: ${named}`;
}
"""

ROW = re.compile(r'<table[^>]*id="result_list".*?href="([^"?]*/change/)', re.DOTALL)


def seen_already(place: str, first: str) -> str:
    """The menu, which is the same on each page but the first."""
    return "" if place == first else "#nav-sidebar"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Node]:
    with operated_node(tmp_path_factory.mktemp("every"), template) as node:
        node.manage("shell", "-c", "from tests.console.one_of_each import fill; fill()")
        with talking(node) as traffic:
            traffic.pair(20)
            yield node


@pytest.mark.timeout(400)  # some fifty pages, on a machine that may be busy
@pytest.mark.parametrize(
    ("theme", "width", "pages"),
    [
        pytest.param("light", 1440, (*MENU, *BESIDE), id="light-1440"),
        pytest.param("dark", 390, (*MENU, *BESIDE), id="dark-390"),
        pytest.param("dark", 390, (*MENU, *BESIDE)[::5], id="one in five"),
    ],
)
def test_every_page_of_the_menu_can_be_read(
    node: Node, chromium_window: Any, theme: str, width: int, pages: Sequence[str]
) -> None:
    page = window.operator_page(chromium_window, node.port)
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": width, "height": 900})
    faults: dict[str, list[str]] = {}
    said: list[str] = []  # blocked scripts and styles are errors in the browser's own log
    page.on("console", lambda each: said.append(each.text))
    for place in pages:
        answer = page.goto(place)
        page.wait_for_load_state("load")
        found = axe_faults(page, but_for=seen_already(place, pages[0]))
        if answer.status != 200:
            found.append(f"answered {answer.status}")
        if wider := page.evaluate(WIDER):
            found.append(f"wider than the window: {wider}")
        if found:
            faults[place] = found
    page.goto(BY_OTHERS)
    page.wait_for_load_state("networkidle")
    assert faults == {}
    assert [each for each in said if "Content Security Policy" in each] == []
    assert page.faults == []
    page.close()


@pytest.mark.timeout(500)  # some thirty pages and their lists, as above
@pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 390)])
def test_every_page_of_a_row_can_be_read(
    node: Node, chromium_window: Any, theme: str, width: int
) -> None:
    page = window.operator_page(chromium_window, node.port)
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": width, "height": 900})
    faults: dict[str, list[str]] = {}
    seen = []
    for place in MENU:
        if not place.startswith("/admin/"):
            continue
        found = ROW.search(page.request.get(place).text())
        if not found:
            continue
        detail = found[1]
        page.goto(detail)
        page.wait_for_load_state("load")
        seen.append(detail)
        wrong = axe_faults(page, but_for=seen_already(detail, seen[0]))
        if wider := page.evaluate(WIDER):
            wrong.append(f"wider than the window: {wider}")
        if code := re.search(r"[(\[{]'\w.*", page.inner_text("body")):
            wrong.append(f"shows what is meant for a program: {code[0][:80]}")
        if wrong:
            faults[detail] = wrong
    assert len(seen) >= 25, seen
    assert not faults, json.dumps(faults, indent=1)
    assert page.faults == []
    page.close()


def test_a_trace_is_opened_and_read_by_keyboard(node: Node, chromium_window: Any) -> None:
    page = window.operator_page(chromium_window, node.port)
    for theme, width in (("light", 1440), ("dark", 390)):
        page.emulate_media(color_scheme=theme)
        page.set_viewport_size({"width": width, "height": 900})
        page.goto("/admin/traces/?type=update")
        page.wait_for_selector("#traces-rows button")
        page.locator("#traces-pause").press("Enter")
        page.locator("#traces-rows button").first.press("Enter")
        page.wait_for_selector("#trace:not([hidden])")
        steps = page.locator("#trace-steps tr").all_inner_texts()
        assert any("admission" in each for each in steps)
        assert any("deliver" in each and "written" in each for each in steps)
        assert axe_faults(page) == []
        assert page.evaluate(WIDER) == ""
        page.locator("#trace-close").press("Enter")
        page.wait_for_selector("#trace", state="hidden")
    assert page.faults == []
    page.close()
