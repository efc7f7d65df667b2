"""The shape of production: Celery over a real Redis, results and locks in a real PostgreSQL."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
import redis

from msgnode.launch.pdeathsig import tie
from tests.node import ROOT, Node
from tests.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(300), pytest.mark.xdist_group("spark")]


def test_a_run_goes_over_redis_and_is_kept_in_postgresql(
    tmp_path: Path, redis_url: str, migrated_url: str
) -> None:
    node = Node(
        tmp_path / "data", DATABASE_URL=migrated_url, REDIS_URL=redis_url, SPARK_KEEP_CLASSES=False
    )
    node.data_dir.mkdir()
    node.manage("traffic_generate", "--rows", "5000", "--days", "1", "--seed", "7")
    broker = redis.Redis.from_url(redis_url)
    broker.delete("celery")  # what others that share this Redis have left
    asked = "from spark import report_runs as runs; from spark.enqueue import enqueue; " + (
        "run = runs.queue('daily', runs.last_full('daily')); enqueue(run.pk); print(run.pk)"
    )
    number = int(node.manage("shell", "--no-imports", "-c", asked).split()[-1])
    assert broker.llen("celery") == 1  # it waits in Redis, not in a file

    with (tmp_path / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "msgnode", "worker", "--loglevel", "INFO"],
            cwd=ROOT, env=node.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            start_new_session=True, preexec_fn=lambda: tie(signal.SIGKILL),
        )  # fmt: skip
    try:
        ended = until(
            lambda: _ended(migrated_url, number) or worker.poll() is not None,
            150,
            lambda: (tmp_path / "worker.log").read_text()[-3000:],
        )
        assert ended == ("done", ""), (tmp_path / "worker.log").read_text()[-3000:]
    finally:
        worker.terminate()
        with suppress(subprocess.TimeoutExpired):
            worker.wait(30)
        worker.kill()
        worker.wait()
    assert broker.llen("celery") == 0
    with psycopg.connect(migrated_url) as database:
        ((rows, figures),) = database.execute("select rows, figures from spark_report").fetchall()
        tables = figures["tables"]
        steps = sum(row["sessions"] for row in tables["sessions"])
        steps += sum(row["times"] for row in tables["reservations"])
        assert rows - steps == figures["totals"]["messages"] > 0
        with pytest.raises(psycopg.errors.UniqueViolation):  # the lock: one runs at a time
            database.execute("update spark_reportrun set state = 'running' where id = %s", [number])
            database.execute(
                'insert into spark_reportrun (kind, start, "end", again, state, trigger, '
                "queued_at, attempts, cancel_asked, progress, step, error, warning, rows_read, "
                'hours_rolled, peak_memory_mb) select kind, start, "end", again, state, trigger, '
                "queued_at, attempts, cancel_asked, progress, step, error, warning, rows_read, "
                "hours_rolled, peak_memory_mb from spark_reportrun where id = %s",
                [number],
            )


def _ended(url: str, number: int) -> tuple[str, str] | None:
    """How the run ended, and why; None while it goes on."""
    with psycopg.connect(url) as database:
        row = database.execute(
            "select state, error from spark_reportrun where id = %s", [number]
        ).fetchone()
    assert row
    return row if row[0] in ("done", "failed", "cancelled") else None
