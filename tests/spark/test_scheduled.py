"""A scheduled run from end to end on the embedded default: `make run`, beat, worker, Spark."""

from __future__ import annotations

import re
import shutil
import signal
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tests.console.window import opened, operator_page
from tests.e2e.launched import Launched
from tests.node import Node
from tests.services import free_port
from tests.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(400), pytest.mark.xdist_group("spark")]
DUE_NOW = """
from django.utils import timezone
from django_celery_beat.models import ClockedSchedule, PeriodicTask
now = ClockedSchedule.objects.create(clocked_time=timezone.now())
for task in PeriodicTask.objects.filter(task="spark.hourly"):
    task.crontab, task.clocked, task.one_off = None, now, True
    task.save()
"""
ENDED = "select state from spark_reportrun where trigger = 'schedule' and ended_at is not null"


def test_the_schedule_makes_a_report_that_the_console_shows(
    tmp_path: Path, template: Path, chromium: str
) -> None:
    data, port = tmp_path / "data", free_port()
    data.mkdir()
    shutil.copy(template, data / "node.sqlite3")
    manage = Node(data).manage  # with none of the tests' own settings
    with Launched(data, port, ("make", "run"), {"SPARK_KEEP_CLASSES": "false"}) as node:
        said = re.search(r"password (\S+)", node.line_with("console account"))
        assert said
        node.ready()
        manage("traffic_generate", "--rows", "5000", "--days", "1", "--seed", "7")
        manage("shell", "--no-imports", "-c", DUE_NOW)
        assert until(partial(first_run_ended, data), 240) == "done"
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
    """The list of runs and the last 24 hours, as the operator sees them."""
    with opened(chromium) as window:
        page = operator_page(window, port, password)
        page.goto("/admin/spark/reportrun/")
        assert page.get_by_text("schedule", exact=True).first.is_visible()
        page.screenshot(path=place / "runs.png")
        page.goto("/admin/spark/report/last-day/")
        page.wait_for_selector("canvas[data-chart=outcomes]")
        assert "The last 24 hours" in page.inner_text("#report h1")
        page.screenshot(path=place / "last-day.png", full_page=True)
