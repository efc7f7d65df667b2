"""The stream beside a real node: its process is killed, and what it cannot do is told."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.utils import timezone

from msgnode.models import Alarm
from spark import stream
from spark.models import Report
from tests.e2e.launched import Launched
from tests.node import Node
from tests.services import free_port
from tests.waiting import until

LIMIT = 150.0


def column(data: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(data / "node.sqlite3")) as database:
        return [row[0] for row in database.execute(query)]


def messages(data: Path) -> int:
    """Messages in the reports of the hours."""
    made = column(data, "select figures from spark_report where kind = 'hourly'")
    return sum(json.loads(figures)["totals"].get("messages", 0) for figures in made)


@pytest.mark.long
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(500)
def test_the_stream_runs_beside_the_node_and_goes_on_after_its_spark_was_killed(
    tmp_path: Path, template: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    shutil.copy(template, data / "node.sqlite3")
    asked = {
        "REPORT_STREAM": "true", "REPORT_STREAM_SECONDS": "1", "SPARK_MASTER": "local[2]",
        "SPARK_MEMORY": "1g", "SPARK_KEEP_CLASSES": "false",
    }  # fmt: skip
    manage = Node(data).manage  # with none of the tests' own settings
    with Launched(data, free_port(), environment=asked) as node:
        node.ready()
        manage("traffic_generate", "--rows", "500", "--days", "1", "--seed", "7")
        until(lambda: messages(data) == 500, LIMIT, lambda: log_of(data))
        os.killpg(group_of_the_stream(node.pid), signal.SIGKILL)
        told = "select kind from msgnode_alarm where cleared_at is null"
        until(lambda: stream.ALARM in column(data, told), LIMIT, lambda: log_of(data))
        manage("traffic_generate", "--rows", "300", "--days", "1", "--seed", "8")
        until(lambda: messages(data) == 800, LIMIT, lambda: log_of(data))
        until(lambda: stream.ALARM not in column(data, told), LIMIT, lambda: log_of(data))
        node.signal(signal.SIGINT)
        node.status()
        assert node.survivors(60) == []


def group_of_the_stream(launcher: int) -> int:
    """The process group of Spark. A process that it has just forked looks like itself."""
    groups = set()
    for process in filter(is_the_stream, psutil.Process(launcher).children(recursive=True)):
        with suppress(ProcessLookupError):  # it has ended since
            groups.add(os.getpgid(process.pid))
    (group,) = groups
    return group


def is_the_stream(process: psutil.Process) -> bool:
    try:
        return any(word.endswith("stream_main.py") for word in process.cmdline())
    except psutil.Error:  # it has ended
        return False


def log_of(data: Path) -> str:
    log = data / "reports" / "stream" / "log"
    return log.read_text()[-3000:] if log.exists() else "no log"


@pytest.mark.django_db
def test_a_report_that_was_made_since_is_not_replaced_by_an_older_one_of_the_stream(
    tmp_path: Path, template: Path
) -> None:
    start = datetime(2026, 11, 20, 9, tzinfo=UTC)

    def hand_over(name: str, hours: list[datetime], at: datetime, rows: int) -> None:
        reports = [
            {
                "kind": "hourly", "start": hour.isoformat(),
                "end": (hour + timedelta(hours=1)).isoformat(), "rows": rows,
                "hours_recorded": [], "hours_of_period": 1,
            }
            for hour in hours
        ]  # fmt: skip
        made = {"at": at.isoformat(), "rows_read": rows, "reports": reports}
        (tmp_path / name).write_text(json.dumps(made))

    now = timezone.now()
    hand_over("1.json", [start], now, 7)
    assert stream.take(tmp_path) == 1
    hand_over("2.json", [start, start + timedelta(hours=1)], now - timedelta(minutes=1), 5)
    (tmp_path / "3.json.tmp").write_text("half")
    assert stream.take(tmp_path) == 1
    rows = dict(Report.objects.values_list("start", "rows"))
    assert rows == {start: 7, start + timedelta(hours=1): 5}
    assert [path.name for path in tmp_path.iterdir()] == ["3.json.tmp"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("text", ["", '{"at": "2026-11', "[]", '{"at": 7}'])
def test_reports_that_cannot_be_read_are_set_aside_and_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "1.json").write_text(text)
    (tmp_path / "2.json").write_text(json.dumps({"at": "2026-11-21T13:00+00:00", "reports": []}))
    assert stream.take(tmp_path) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["1.damaged"]
    assert "1.json cannot be read" in Alarm.objects.get(kind=stream.ALARM).text


def test_it_is_off_unless_asked_for(settings: Any) -> None:
    assert settings.REPORTS["STREAM"] is False
