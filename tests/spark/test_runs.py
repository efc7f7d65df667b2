"""Runs: each claimed once, lost ones queued again, cancelled ones ended with all they started."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.db import OperationalError, transaction
from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, PeriodicTask

from msgnode.models import Alarm
from spark import freshness, report_runs, tasks
from spark.jobs import periods
from spark.jobs.periods import Kind
from spark.models import Report, ReportRun

pytestmark = pytest.mark.django_db(transaction=True)
DAY = datetime(2026, 11, 20, tzinfo=UTC)
DONE = """
import json, pathlib, sys
words = sys.argv[1:]
start = words[words.index("--start") + 1]
figures = {"kind": "daily", "start": start, "end": "2026-11-21T00:00:00+00:00", "rows": 7,
           "hours_recorded": [start], "hours_of_period": 24}
result = {"rows_read": 7, "hours_rolled": 1, "peak_memory_mb": 3, "reports": [figures]}
print(json.dumps({"progress": 0.5, "step": "half"}), flush=True)
pathlib.Path(words[words.index("--result") + 1]).write_text(json.dumps(result))
"""
BREAKS = "import sys; sys.exit('no memory left')"
HANGS = """
import json, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(json.dumps({"progress": 0.1, "step": str(child.pid)}), flush=True)
child.wait()
"""
Submit = Callable[[str], None]


@pytest.fixture
def submit(tmp_path: Path, settings: Any) -> Submit:
    """A program in the place of spark-submit."""
    settings.DATA_DIR = tmp_path

    def put(program: str) -> None:
        script = tmp_path / "submit"
        script.write_text(f"#!{sys.executable}\n{program}")
        script.chmod(0o755)
        settings.REPORTS = settings.REPORTS | {"SUBMIT": str(script)}

    return put


def queued(kind: Kind = Kind.DAILY, start: datetime = DAY) -> ReportRun:
    return report_runs.queue(kind, start)


def test_a_run_makes_its_report_and_a_rerun_replaces_it(submit: Submit) -> None:
    submit(DONE)
    seen: list[float] = []
    for _ in range(2):
        run = report_runs.execute(queued().pk, lambda run: seen.append(run.progress))
        assert run is not None
        assert (run.state, run.rows_read, run.error) == ("done", 7, "")
    report = Report.objects.get()
    assert (report.kind, report.start, report.rows, report.run) == ("daily", DAY, 7, run)


@pytest.mark.parametrize("again", [False, True])
def test_a_run_that_begins_as_the_same_is_asked_for_is_followed_by_another(
    monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    first = queued()
    atomic = transaction.atomic

    @contextmanager
    def begins() -> Iterator[None]:
        try:
            with atomic():
                yield
        finally:  # by another process
            ReportRun.objects.filter(pk=first.pk).update(state=ReportRun.State.RUNNING)

    monkeypatch.setattr(transaction, "atomic", begins)
    second = report_runs.queue(Kind.DAILY, DAY, again=again)
    assert (second.pk != first.pk, second.state, second.again) == (True, "queued", again)
    first.refresh_from_db()
    assert (first.state, first.again) == ("running", False)


def test_a_report_is_stored_without_zero_bytes_which_postgresql_takes_in_no_json() -> None:
    start, end = DAY.isoformat(), (DAY + timedelta(days=1)).isoformat()
    figures = {"kind": "daily", "start": start, "end": end, "rows": 1, "hours_recorded": []}
    talkers = [{"address": "a\x00b://c", "messages": 1}]
    figures |= {"hours_of_period": 24, "tables": {"talkers": talkers}}
    run = queued()
    ReportRun.objects.filter(pk=run.pk).update(state=ReportRun.State.RUNNING)
    report_runs.store(run, [figures], timezone.now())
    stored = Report.objects.get().figures
    assert stored == figures | {"tables": {"talkers": [talkers[0] | {"address": "a\ufffdb://c"}]}}


def test_a_run_names_the_raw_files_it_could_not_read_and_an_alarm_stands(submit: Submit) -> None:
    file = {"hour": "2026-11-20T13:00:00+00:00", "file": "w-1.parquet", "fault": "no footer"}
    submit(DONE.replace('"peak_memory_mb": 3', f'"peak_memory_mb": 3, "damaged": [{file}]'))
    run = report_runs.execute(queued().pk)
    assert run is not None
    run.refresh_from_db()
    assert (run.state, run.warning) == ("done", "2026-11-20 13:00 w-1.parquet: no footer")
    alarm = Alarm.objects.get(kind=report_runs.ALARM)
    assert (alarm.subject, "w-1.parquet" in alarm.text) == ("2026-11-20 13:00", True)


def test_what_cannot_be_compacted_is_told_and_the_reports_are_stored(submit: Submit) -> None:
    full = DONE.replace('"peak', '"not_compacted": "OSError: No space left", "peak')
    for program, stands in ((full, True), (DONE, False)):
        submit(program)
        run = report_runs.execute(queued().pk)
        assert run is not None
        assert run.state == "done"
        assert Report.objects.count() == 1
        alarms = Alarm.objects.filter(kind=report_runs.NOT_COMPACTED, cleared_at=None)
        assert ["No space left" in alarm.text for alarm in alarms] == [True] * stands


def test_what_waits_already_is_not_queued_twice() -> None:
    first = queued(start=DAY + timedelta(hours=5))
    assert report_runs.queue(Kind.DAILY, DAY, again=True) == first
    first.refresh_from_db()
    assert (first.start, first.end, first.again) == (DAY, DAY + timedelta(days=1), True)


def test_one_runs_at_a_time_and_each_is_claimed_once() -> None:
    first, second = queued(), queued(Kind.HOURLY)
    assert report_runs.claim(first.pk) is not None
    assert report_runs.claim(first.pk) is None
    assert report_runs.claim(second.pk) is None
    assert report_runs.sweep() == []


def test_a_run_that_breaks_down_is_tried_again_and_then_given_up(submit: Submit) -> None:
    submit(BREAKS)
    run = queued()
    for attempt in range(1, report_runs.ATTEMPTS + 1):
        assert report_runs.sweep() == [run.pk]
        report_runs.execute(run.pk)
        run.refresh_from_db()
        assert (run.attempts, "no memory left" in run.error) == (attempt, True)
    assert (run.state, report_runs.sweep()) == ("failed", [])
    assert not Report.objects.exists()


def test_a_lost_run_is_queued_again_and_not_for_ever() -> None:
    run = queued()
    for _ in range(report_runs.ATTEMPTS):
        assert report_runs.sweep() == [run.pk]
        assert report_runs.claim(run.pk) is not None
        assert report_runs.sweep() == []
        lost = timezone.now() - report_runs.LOST_AFTER - timedelta(seconds=1)
        ReportRun.objects.update(seen_at=lost)
    assert report_runs.sweep() == []
    run.refresh_from_db()
    assert run.state == "failed"


def another_takes_over(run: ReportRun) -> None:
    """What happens while the process of a run is frozen: it is found to be lost, and begun anew."""
    ReportRun.objects.filter(pk=run.pk).update(
        seen_at=timezone.now() - report_runs.LOST_AFTER - timedelta(seconds=1)
    )
    assert report_runs.sweep() == [run.pk]
    assert report_runs.claim(run.pk) is not None


@pytest.mark.parametrize("program", [DONE, 'print(\'{"progress": 0.1, "step": ""}\');' + BREAKS])
def test_a_frozen_process_that_comes_back_changes_nothing_of_the_attempt_after_its_own(
    submit: Submit, program: str
) -> None:
    submit(program)
    run = queued()
    assert report_runs.execute(run.pk, another_takes_over) is None
    run.refresh_from_db()
    assert (run.state, run.attempts, run.error, run.progress) == ("running", 2, "", 0.0)
    assert not Report.objects.exists()


def test_a_frozen_process_that_comes_back_ends_all_it_started(submit: Submit) -> None:
    submit(HANGS)
    run = queued()
    children: list[psutil.Process] = []

    def watch(run: ReportRun) -> None:
        children.append(psutil.Process(int(run.step)))
        another_takes_over(run)

    assert report_runs.execute(run.pk, watch) is None
    _, alive = psutil.wait_procs(children, timeout=20)
    assert (len(children), alive) == (1, [])


def test_a_database_that_is_away_for_a_moment_ends_no_run(submit: Submit) -> None:
    submit(DONE)

    def fails(run: ReportRun) -> None:
        raise OperationalError("the server closed the connection")

    run = report_runs.execute(queued().pk, fails)
    assert run is not None
    assert (run.state, run.attempts, run.rows_read) == ("done", 1, 7)


def test_a_run_whose_sign_of_life_is_in_the_future_is_lost() -> None:
    """The clock was ahead when it was given; it would block all others until then."""
    run = queued()
    assert report_runs.claim(run.pk) is not None
    ReportRun.objects.update(seen_at=timezone.now() + timedelta(days=365))
    assert report_runs.sweep() == [run.pk]


def ends_with_its_children(run: ReportRun, told: Callable[[ReportRun], object]) -> ReportRun:
    children: list[psutil.Process] = []

    def watch(run: ReportRun) -> None:
        if run.step and not children:
            children.append(psutil.Process(int(run.step)))
            told(run)

    ended = report_runs.execute(run.pk, watch)
    assert ended is not None
    _, alive = psutil.wait_procs(children, timeout=20)
    assert (len(children), alive) == (1, [])
    return ended


def test_cancelling_ends_the_run_and_all_it_started(submit: Submit) -> None:
    submit(HANGS)
    ended = ends_with_its_children(queued(), report_runs.cancel)
    assert ended.state == "cancelled"
    assert not report_runs.cancel(ended)


def test_what_the_run_of_a_killed_worker_left_is_deleted_by_the_next(
    submit: Submit, settings: Any
) -> None:
    reports = settings.DATA_DIR / "reports"
    (reports / "7-1-0a1b2c" / "temporary" / "spark-1").mkdir(parents=True)
    (reports / "else").mkdir()
    submit(DONE)
    run = report_runs.execute(queued().pk)
    assert run is not None
    assert (run.state, [each.name for each in reports.iterdir()]) == ("done", ["else"])


def test_a_run_that_takes_too_long_is_ended(
    submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(HANGS)
    monkeypatch.setattr(report_runs, "TIME_LIMIT", 0.0)
    ended = report_runs.execute(queued().pk)
    assert ended is not None
    assert "took longer" in ended.error


def test_a_waiting_run_is_cancelled_at_once() -> None:
    run = queued()
    assert report_runs.cancel(run)
    run.refresh_from_db()
    assert (run.state, report_runs.claim(run.pk)) == ("cancelled", None)


def test_a_late_schedule_raises_an_alarm_and_a_run_clears_it() -> None:
    hourly = PeriodicTask.objects.get_or_create(
        task="spark.hourly",
        defaults={"name": "h", "crontab": CrontabSchedule.objects.create(minute="5")},
    )[0]
    PeriodicTask.objects.filter(pk=hourly.pk).update(
        date_changed=timezone.now() - timedelta(hours=5), enabled=True
    )
    freshness.look()
    alarm = Alarm.objects.get(kind=freshness.ALARM, subject="hourly")
    assert alarm.cleared_at is None
    now = timezone.now()
    ReportRun.objects.create(kind="hourly", start=now - timedelta(hours=1), end=now, state="done")
    freshness.look()
    alarm.refresh_from_db()
    assert alarm.cleared_at is not None


@pytest.mark.parametrize(("missed", "made_up_for"), [(0, 1), (3, 4), (90, 36)])
def test_what_the_schedule_missed_its_next_run_makes_up_for(
    monkeypatch: pytest.MonkeyPatch, missed: int, made_up_for: int
) -> None:
    monkeypatch.setattr(tasks, "run", lambda pk: "started")
    last = report_runs.last_full(Kind.DAILY)
    covered = last - timedelta(days=missed)
    ReportRun.objects.create(
        kind="daily", start=covered - timedelta(days=1), end=covered, state=ReportRun.State.DONE
    )
    for _ in range(2):  # also where beat runs twice
        assert tasks.daily() == "started"
    waiting = ReportRun.objects.get(state=ReportRun.State.QUEUED)
    assert waiting.end == last + timedelta(days=1)
    assert waiting.end - waiting.start == timedelta(days=made_up_for)


def test_a_report_of_a_period_to_come_does_not_keep_the_schedule_from_being_late() -> None:
    crontab = CrontabSchedule.objects.create(minute="5")
    task, _ = PeriodicTask.objects.update_or_create(
        task="spark.hourly", defaults={"name": "hourly report", "crontab": crontab}
    )
    PeriodicTask.objects.filter(pk=task.pk).update(date_changed=DAY - timedelta(days=1))
    ReportRun.objects.create(
        kind="hourly", start=DAY + timedelta(days=365), end=DAY + timedelta(days=366), state="done"
    )
    assert freshness.of(Kind.HOURLY, DAY) == freshness.Freshness(Kind.HOURLY, None, is_late=True)


def test_a_report_whose_run_is_kept_no_longer_still_covers_its_period() -> None:
    crontab = CrontabSchedule.objects.create(minute="5")
    task, _ = PeriodicTask.objects.update_or_create(
        task="spark.yearly", defaults={"name": "yearly report", "crontab": crontab}
    )
    PeriodicTask.objects.filter(pk=task.pk).update(date_changed=DAY - timedelta(days=900))
    year = datetime(2025, 1, 1, tzinfo=UTC)
    end = datetime(2026, 1, 1, tzinfo=UTC)
    report = Report.objects.create(kind="yearly", start=year, end=end, made_at=end)
    assert freshness.of(Kind.YEARLY, DAY) == freshness.Freshness(Kind.YEARLY, end, is_late=False)
    report.delete()
    assert freshness.of(Kind.YEARLY, DAY).is_late


@pytest.mark.parametrize("kind", list(Kind))
def test_a_schedule_is_late_once_its_slack_is_over_and_not_before(kind: Kind) -> None:
    crontab = CrontabSchedule.objects.create(minute="5")
    PeriodicTask.objects.update_or_create(
        task=f"spark.{kind}", defaults={"name": f"{kind} report", "crontab": crontab}
    )
    PeriodicTask.objects.filter(task=f"spark.{kind}").update(
        date_changed=DAY - timedelta(days=90), enabled=True
    )
    end = periods.start_of(kind, DAY)
    ReportRun.objects.create(
        kind=kind, start=periods.before(kind, end), end=end, state=ReportRun.State.DONE
    )
    due = periods.after(kind, end) + freshness.SLACK[kind]
    assert freshness.of(kind, due) == freshness.Freshness(kind, end, is_late=False)
    assert freshness.of(kind, due + timedelta(seconds=1)).is_late
    PeriodicTask.objects.filter(task=f"spark.{kind}").update(enabled=False)
    assert not freshness.of(kind, due + timedelta(days=400)).is_late


def test_a_master_that_cannot_be_reached_is_said_at_once(submit: Submit, settings: Any) -> None:
    submit(DONE)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    settings.REPORTS = settings.REPORTS | {"MASTER": f"spark://127.0.0.1:{port}"}
    began = time.monotonic()
    run = report_runs.execute(queued().pk)
    assert run is not None
    assert time.monotonic() - began < 20
    assert f"No Spark master answers at spark://127.0.0.1:{port}" in run.error
    assert "SPARK_MASTER" in run.error


def test_a_reason_has_no_frames_of_javas_stack(submit: Submit) -> None:
    frame = "\tat org.apache.spark.Some$Class.method(File.scala:1)"
    said = [*[frame] * 400, "org.apache.spark.SparkException: no room", frame, "\t... 12 more"]
    text = "\n".join(said)
    submit(f"import sys; sys.exit({text!r})")
    run = report_runs.execute(queued().pk)
    assert run is not None
    assert run.error == "ended with 1: org.apache.spark.SparkException: no room"
