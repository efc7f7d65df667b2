"""The page of a report in a real browser: readable by all, on a phone and on paper."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import waiting
from tests.accessibility import axe_faults
from tests.console.browser import log_in
from tests.console.window import opened, operator_page
from tests.node import Node, running

pytestmark = [pytest.mark.long, pytest.mark.timeout(400), pytest.mark.xdist_group("spark")]
PHONE = {"width": 390, "height": 844}
PAPER = {"width": 794, "height": 1123}  # A4 at 96 dots an inch


@pytest.fixture(scope="module")
def reporting(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Node]:
    """A node with a daily report, made by its own commands."""
    # Spark and Java have to be told of letters that others never see in a path.
    place = tmp_path_factory.mktemp("reporting") / "Über Straße"
    with running(place, template, LANG="C", LC_ALL="C") as node:
        log_in(node)  # makes the account
        node.manage("traffic_generate", "--rows", "14000", "--days", "2", "--seed", "7")
        node.manage("report_run", "daily", "--json", seconds=300)  # it stands back for others
        yield node


@pytest.fixture(scope="module")
def window(chromium: str) -> Iterator[Any]:
    with opened(chromium) as window:
        yield window


@pytest.fixture
def page(reporting: Node, window: Any) -> Iterator[Any]:
    """The report, with the faults of its scripts in `page.faults`."""
    page = operator_page(window, reporting.port)
    listed = page.request.get("/api/v1/reports/?kind=daily").json()
    page.goto(f"/admin/spark/report/{listed['results'][0]['id']}/change/")
    page.wait_for_selector("canvas[data-chart=outcomes]")
    yield page
    page.close()


def is_drawn(page: Any, name: str) -> bool:
    """Whether a chart has ink on it."""
    return bool(
        page.evaluate(
            """name => {
                const canvas = document.querySelector(`canvas[data-chart=${name}]`);
                const { width, height } = canvas;
                const data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
                return data.some((value) => value > 0);
            }""",
            name,
        )
    )


def test_a_report_is_drawn_and_axe_finds_nothing(page: Any, tmp_path: Path) -> None:
    for name in (
        "outcomes", "latency", "types", "components", "pairs", "effects", "peers", "networks",
        "services", "reservations", "relayed", "p2p",
    ):  # fmt: skip
        assert is_drawn(page, name), name
    drawn = json.loads(page.inner_text("#report-data") or page.text_content("#report-data"))
    assert len(drawn["hours"]) == 24
    page.screenshot(path=tmp_path / "report.png", full_page=True)
    assert axe_faults(page, "serious", "critical") == []
    assert page.faults == []


def test_on_a_phone_only_tables_scroll_sideways(page: Any, tmp_path: Path) -> None:
    page.set_viewport_size(PHONE)
    waiting.in_page(
        page, "document.querySelector('canvas[data-chart=outcomes]').clientWidth < innerWidth"
    )
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.screenshot(path=tmp_path / "phone.png", full_page=True)


def test_on_paper_the_console_is_left_out(page: Any, tmp_path: Path) -> None:
    page.set_viewport_size(PAPER)
    page.emulate_media(media="print")
    assert not page.is_visible(".report-screen >> nth=0")
    assert not page.is_visible("#nav-sidebar")
    assert page.is_visible("#report h1")
    assert page.evaluate("document.querySelector('#main').getBoundingClientRect().left") == 0
    assert (
        page.evaluate(
            """[...document.querySelectorAll('.report-scroll')]
            .filter((table) => table.scrollWidth > table.clientWidth).length"""
        )
        == 0
    )  # nothing is cut off where nobody can scroll
    page.screenshot(path=tmp_path / "print.png", full_page=True)
    assert len(page.pdf()) > 10_000


def test_charts_take_the_inks_of_the_theme_that_is_on(page: Any) -> None:
    """The theme is set after the script is read, and may be switched later."""
    first = "canvas[data-chart=outcomes]"
    page.evaluate("document.documentElement.classList.remove('dark')")
    page.wait_for_selector(f"{first}[data-ink='#3f3f46']")
    page.evaluate("document.documentElement.classList.add('dark')")
    page.wait_for_selector(f"{first}[data-ink='#d4d4d8']")
    assert is_drawn(page, "outcomes")
    page.evaluate("localStorage.setItem('adminTheme', JSON.stringify('dark'))")
    page.evaluate("localStorage.setItem('_x_adminTheme', JSON.stringify('dark'))")
    page.reload()
    waiting.in_page(page, "document.documentElement.classList.contains('dark')")
    page.wait_for_selector(f"{first}[data-ink='#d4d4d8']")
    assert page.faults == []
