"""The stream beside a real node: its process is killed, and what it cannot do is told."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.utils import timezone

from spark import stream
from spark.models import Report
from tests.node import ROOT, Node
from tests.traffic.test_faults import exchange
from tests.waiting import until

LIMIT = 150.0


def column(node: Node, query: str) -> list[Any]:
    with closing(sqlite3.connect(node.data_dir / "node.sqlite3")) as database:
        return [row[0] for row in database.execute(query)]


def messages(node: Node) -> int:
    """Messages in the reports of the hours."""
    made = column(node, "select figures from spark_report where kind = 'hourly'")
    return sum(json.loads(figures)["totals"].get("messages", 0) for figures in made)


@pytest.mark.long
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(400)
async def test_messages_are_in_the_reports_soon_and_again_after_its_spark_was_killed(
    start_node: Callable[..., Node],
) -> None:
    node = start_node(
        RECORD_FLUSH_SECONDS=0.2, REPORT_STREAM_SECONDS=1, SPARK_MASTER="local[2]",
        SPARK_MEMORY="1g",
    )  # fmt: skip
    follower = start_following(node)
    try:
        await exchange(node, 100)
        until(lambda: messages(node) >= 100, LIMIT, lambda: log_of(node))
        (child,) = psutil.Process(follower.pid).children()
        os.killpg(child.pid, signal.SIGKILL)
        told = "select kind from msgnode_alarm where cleared_at is null"
        until(lambda: stream.ALARM in column(node, told), 30)
        await exchange(node, 100)
        until(lambda: messages(node) >= 200, LIMIT, lambda: log_of(node))
        until(lambda: stream.ALARM not in column(node, told), 30)
        follower.terminate()
        assert follower.wait(30) == 0
        assert not psutil.pid_exists(child.pid)
    finally:
        follower.kill()
        follower.wait()


def start_following(node: Node) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "manage.py"), "report_stream"], env=node.environment, cwd=ROOT,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def log_of(node: Node) -> str:
    log = node.data_dir / "reports" / "stream" / "log"
    return log.read_text()[-3000:] if log.exists() else "no log"


@pytest.mark.django_db
def test_a_report_that_was_made_since_is_not_replaced_by_an_older_one_of_the_stream(
    tmp_path: Path,
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


def test_it_is_off_unless_asked_for(settings: Any) -> None:
    assert settings.REPORTS["STREAM"] is False
