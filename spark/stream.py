"""Runs the stream of reports: its Spark process, and the storage of its reports.

It is an option beside the schedule (REPORT_STREAM): `manage.py report_stream` runs it until it is
told to stop. If the process ends, an alarm says so and it is restarted, with growing pauses; an
unreadable checkpoint is discarded, because the ledger tells what is not aggregated.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
import time
from datetime import datetime
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, close_old_connections

from msgnode.storage import alarms
from spark import cluster, java, process, programs, report_runs
from spark.models import Report

log = logging.getLogger(__name__)

ALARM = "report-stream"
PAUSES = (5.0, 15.0, 60.0, 300.0)
"""Seconds until it is started again, after the first failure, the second, …"""
WORKS_AFTER = 120.0
"""Seconds after which a process that ends has not failed at its start."""
FOREVER = float("inf")


def folder() -> Path:
    """Where the stream keeps its checkpoint and hands over what it made."""
    place: Path = settings.DATA_DIR / "reports" / "stream"
    return place


def follow(stop: threading.Event) -> None:
    """Run the stream until told to stop."""
    failures = 0
    while not stop.is_set():
        began = time.monotonic()
        try:
            run_once(stop)
        except process.Cancelled:
            return
        except (process.Ended, cluster.NoMaster, java.Lacking, OSError) as error:
            lasted = time.monotonic() - began
            failures = 1 if lasted > WORKS_AFTER else failures + 1
            log.warning("the stream of reports ended", extra={"error": str(error)})
            _tell(f"The stream of reports ended, the schedule goes on: {error}"[:500])
            if failures > 1:
                shutil.rmtree(folder() / "checkpoint", ignore_errors=True)
            stop.wait(PAUSES[min(failures, len(PAUSES)) - 1])


def run_once(stop: threading.Event) -> None:
    """One process of it, to its end. Raises process.Ended, process.Cancelled if told to stop."""
    java.check_spark()
    cluster.check_master(settings.REPORTS["MASTER"])
    results = folder() / "results"
    results.mkdir(parents=True, exist_ok=True)
    temporary = folder() / "temporary"
    shutil.rmtree(temporary, ignore_errors=True)  # what the process before this one left
    temporary.mkdir()
    work = {"stands": True}  # an alarm, perhaps of the process before this one

    def watch(progress: float | None, step: str) -> bool:
        try:
            close_old_connections()
            if take(results) and work["stands"]:
                alarms.clear_alarm(ALARM, settings.DOMAIN)
                work["stands"] = False
        except (DatabaseError, OSError):  # they wait there, and are taken the next time
            log.exception("reports of the stream cannot be stored")
        return not stop.is_set()

    process.run(
        command(results), programs.environment(temporary), folder() / "log", time_limit=FOREVER,
        niceness=settings.REPORTS["NICENESS"], watch=watch,
    )  # fmt: skip


def command(results: Path) -> list[str]:
    """The command line of its process."""
    start, conf = programs.command_start("stream_main.py")
    options = settings.REPORTS
    return [
        *start, "--record", settings.RECORD["URL"], "--checkpoint", str(folder() / "checkpoint"),
        "--results", str(results), "--every", str(options["STREAM_SECONDS"]), "--tied",
        "--executor-wait", str(options["EXECUTOR_WAIT"]), "--home", settings.DOMAIN, *conf,
    ]  # fmt: skip


def take(results: Path) -> int:
    """Store the reports that wait, oldest first, in place of older ones; how many."""
    taken = 0
    for path in sorted(results.glob("*.json")):
        try:
            result = json.loads(path.read_text())
            at = datetime.fromisoformat(result["at"])
        except (ValueError, KeyError, TypeError) as fault:
            path.replace(path.with_suffix(".damaged"))
            log.error(
                "reports of the stream cannot be read; the schedule makes them", exc_info=fault
            )
            _tell(f"Reports of the stream in {path.name} cannot be read; the schedule makes them.")
            continue
        newer = {
            start.isoformat()
            for start in Report.objects.filter(
                kind="hourly",
                start__in=[datetime.fromisoformat(each["start"]) for each in result["reports"]],
                made_at__gt=at,
            ).values_list("start", flat=True)
        }
        reports = [each for each in result["reports"] if each["start"] not in newer]
        report_runs.store(None, reports, at)
        path.unlink()
        taken += len(reports)
    return taken


def _tell(text: str) -> None:
    try:
        close_old_connections()
        alarms.raise_alarm(ALARM, settings.DOMAIN, text)
    except DatabaseError:
        log.exception("the alarm of the stream cannot be stored")
