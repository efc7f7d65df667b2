"""Reports in a real browser: those of a scheduled run, and one on a phone and on paper."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import waiting
from tests.accessibility import axe_faults
from tests.console.browser import log_in
from tests.console.window import opened, operator_page
from tests.e2e.launched import Launched
from tests.node import Node, running
from tests.services import free_port
from tests.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.xdist_group("spark")]
PHONE = {"width": 390, "height": 844}
PAPER = {"width": 794, "height": 1123}  # A4 at 96 dots an inch
PLACE = "Über Straße"
"""Spark and Java have to be told of letters that others never see in a path."""
PLAIN = {"LANG": "C", "LC_ALL": "C"}
DUE_NOW = """
from django.utils import timezone
from django_celery_beat.models import ClockedSchedule, PeriodicTask
now = ClockedSchedule.objects.create(clocked_time=timezone.now())
for task in PeriodicTask.objects.filter(task="spark.hourly"):
    task.crontab, task.clocked, task.one_off = None, now, True
    task.save()
"""
ENDED = "select state from spark_reportrun where trigger = 'schedule' and ended_at is not null"


@pytest.fixture(scope="module")
def reporting(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Node]:
    """A node with a daily report, made by its own commands."""
    place = tmp_path_factory.mktemp("reporting") / PLACE
    with running(place, template, **PLAIN) as node:
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


def test_the_schedule_makes_a_report_that_the_console_shows(
    tmp_path: Path, template: Path, chromium: str
) -> None:
    """From end to end on the embedded default: `make run`, beat, worker, Spark, the console."""
    data, port = tmp_path / PLACE, free_port()
    data.mkdir()
    shutil.copy(template, data / "node.sqlite3")
    manage = Node(data).manage  # with none of the tests' own settings
    with Launched(data, port, ("make", "run"), {"SPARK_KEEP_CLASSES": "false"} | PLAIN) as node:
        said = re.search(r"password (\S+)", node.line_with("console account"))
        assert said
        node.ready()
        manage("traffic_generate", "--rows", "5000", "--days", "1", "--seed", "7")
        manage("shell", "--no-imports", "-c", DUE_NOW)
        assert until(partial(first_run_ended, data), 420) == "done"
        look(chromium, port, said[1], tmp_path)
        node.signal(signal.SIGINT)
        node.status()
        assert node.survivors(60) == []


def first_run_ended(data: Path) -> str:
    """How the first run of the schedule ended; "" while none has."""
    with closing(sqlite3.connect(data / "node.sqlite3")) as database:
        ended = database.execute(ENDED).fetchone()
    return ended[0] if ended else ""


def look(chromium: str, port: int, password: str, place: Path) -> None:
    """The list of runs and the last 24 hours, as the operator sees them: readable by all."""
    with opened(chromium) as window:
        page = operator_page(window, port, password)
        page.goto("/admin/spark/reportrun/")
        assert page.get_by_text("schedule", exact=True).first.is_visible()
        page.screenshot(path=place / "runs.png")
        page.goto("/admin/spark/report/last-day/")
        page.wait_for_selector("canvas[data-chart=outcomes]")
        assert "The last 24 hours" in page.inner_text("#report h1")
        page.screenshot(path=place / "last-day.png", full_page=True)
        drawn = page.eval_on_selector_all("canvas", "all => all.map((one) => one.dataset.chart)")
        assert {"outcomes", "latency", "types", "pairs"} <= set(drawn)
        assert [name for name in drawn if not is_drawn(page, name)] == []
        assert axe_faults(page, "serious", "critical") == []
        assert page.faults == []


# --- a report of a day ----------------------------------------------------------------------------
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
