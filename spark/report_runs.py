"""The life of a run: queued → running → done | failed | cancelled.

- The row is the truth. A task only names it; whoever claims the row executes the run, once.
- One run at a time (a database constraint); a task that finds another one running leaves its row
  queued, for the end of that run or the sweep to start.
- A run that crashed, or that has shown no sign of life and so was lost with its process, is queued
  again, up to ATTEMPTS times; the sweep starts it.
- A process that was frozen until its run was taken from it can write nothing any more: every write,
  reports included, requires the row to be at the same attempt.
- If a cluster does not answer, the user is told at once; a scheduled run is retried.
- Cancelling sets a flag; the executing process sees it within a second or two and ends the group.

Alarms about raw files that cannot be read or compacted come from the reports of the runs. These are
the source, not the code that sets a file aside: so a run that is killed in between
makes no difference. The same alarm is not raised twice, so an operator may clear it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import DatabaseError, IntegrityError, close_old_connections, transaction
from django.db.models import F, Q
from django.utils import timezone

from msgnode.models import Alarm
from msgnode.storage import alarms
from spark import cluster, java, process
from spark.jobs import periods
from spark.jobs.periods import Kind
from spark.models import Report, ReportRun

log = logging.getLogger(__name__)

ATTEMPTS = 3
DRIVER_MEMORY = "2g"
"""Of Spark's driver, unless SPARK_CONF says otherwise."""
EXECUTOR_SECONDS = 60.0
"""For the first executor of a cluster: one that is free gives it at once."""
NICENESS = 10
"""Reports yield the processor to messages, and still end."""
TIME_LIMIT = 3300.0
"""Less than Celery gives the task (CELERY_TASK_TIME_LIMIT): so the run says itself why it ended."""
LOST_AFTER = timedelta(seconds=90)
AHEAD = timedelta(hours=1)
"""A sign of life from later than this was given before the clock was set back."""
OLDEST, NEWEST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
LONGEST = timedelta(days=1_200)
_SIGN_OF_LIFE = 5.0
_AT_ONCE = 50
_TRIES = 3  # to find the run that waits, which another process may begin at the same moment
_WORK = re.compile(r"\d+-\d+-[0-9a-f]{6}")
Watcher = Callable[[ReportRun], None]


class NoSuchPeriod(ValueError):
    """A run was asked for that no record can have rows of, or of more than one run should do."""


class TakenOver(Exception):
    """The run is no longer this process's: it was lost meanwhile, cancelled or deleted."""


def check_period(start: datetime, end: datetime | None) -> None:
    """Raises NoSuchPeriod."""
    if not OLDEST <= start <= NEWEST:
        raise NoSuchPeriod(f"start is not between {OLDEST:%Y-%m-%d} and {NEWEST:%Y-%m-%d}.")
    if end is not None and not start < end <= start + LONGEST:
        raise NoSuchPeriod(f"end is not after start and at most {LONGEST.days} days later.")


def queue(
    kind: str,
    start: datetime,
    end: datetime | None = None,
    *,
    trigger: str = ReportRun.Trigger.OPERATOR,
    asked_by: Any = None,
    again: bool = False,
) -> ReportRun:
    """A row for the periods that begin from `start` to before `end` (one, if None).

    A run for the same that already waits is the one. Raises NoSuchPeriod.
    """
    check_period(start, end)
    first = periods.start_of(Kind(kind), start.astimezone(UTC))
    last = periods.after(Kind(kind), first)
    while end is not None and last < end:
        last = periods.after(Kind(kind), last)
    same = {"kind": kind, "start": first, "end": last, "state": ReportRun.State.QUEUED}
    waits = ReportRun.objects.filter(**same)
    for _ in range(_TRIES):
        try:
            with transaction.atomic():
                return waits.create(**same, trigger=trigger, asked_by=asked_by, again=again)
        except IntegrityError as error:
            clash = error
        waiting = waits.first()
        if waiting is not None and (not again or waits.update(again=True)):
            return waiting
    raise clash


def last_full(kind: str, now: datetime | None = None) -> datetime:
    """When the last period of this kind that is over began."""
    return periods.last_full(Kind(kind), now or datetime.now(UTC))


def claim(pk: int) -> ReportRun | None:
    """The run, now ours to run; None if it does not wait any more or another one runs."""
    now = timezone.now()
    try:
        with transaction.atomic():
            ours = ReportRun.objects.filter(pk=pk, state=ReportRun.State.QUEUED).update(
                state=ReportRun.State.RUNNING, started_at=now, seen_at=now, ended_at=None,
                progress=0.0, step="", error="", warning="", attempts=F("attempts") + 1,
            )  # fmt: skip
    except IntegrityError:
        return None
    return ReportRun.objects.get(pk=pk) if ours else None


def execute(pk: int, told: Watcher | None = None) -> ReportRun | None:
    """Run what waits under this number, here and now; None if it is not ours to run."""
    run = claim(pk)
    if run is None:
        return None
    log.info("report run begins", extra={"run": str(run), "attempt": run.attempts})
    try:
        _execute(run, told)
    except TakenOver:
        log.warning("report run was taken over by another process", extra={"run": str(run)})
        return None
    log.info("report run ended", extra={"run": str(run), "state": run.state, "error": run.error})
    return run


def _execute(run: ReportRun, told: Watcher | None) -> None:
    work = settings.DATA_DIR / "reports" / f"{run.pk}-{run.attempts}-{secrets.token_hex(3)}"
    try:
        result = _spark(run, work, told)
        _write(run, progress=0.98, step="storing reports")
        store(run, result["reports"], timezone.now())
        _tell_damage(run, result)
        _end(run, ReportRun.State.DONE, result)
    except process.Cancelled:
        _end(run, ReportRun.State.CANCELLED)
    except process.Ended as error:
        run.error = str(error)[-4_000:]
        _end_or_again(run)
    except (cluster.NoMaster, java.NoSpark) as error:
        run.error = str(error)[-4_000:]
        if run.trigger == ReportRun.Trigger.SCHEDULE:  # nobody waits for it
            _end_or_again(run)
        else:
            _end(run, ReportRun.State.FAILED)
    except (java.Lacking, OSError, ValueError) as error:
        run.error = str(error)[-4_000:]
        _end(run, ReportRun.State.FAILED)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def cancel(run: ReportRun) -> bool:
    """Ask for the end of a run. False if it was over already."""
    now = timezone.now()
    mine = ReportRun.objects.filter(pk=run.pk)
    if mine.filter(state=ReportRun.State.QUEUED).update(
        state=ReportRun.State.CANCELLED, ended_at=now, cancel_asked=True
    ):
        return True
    return bool(mine.filter(state=ReportRun.State.RUNNING).update(cancel_asked=True))


def sweep() -> list[int]:
    """Queue lost runs again, give up those lost too often; the numbers of all that can be run."""
    now = timezone.now()
    lost = ReportRun.objects.filter(
        Q(seen_at__lt=now - LOST_AFTER) | Q(seen_at__gt=now + AHEAD) | Q(seen_at=None),
        state=ReportRun.State.RUNNING,
    )
    for run in lost:
        over = run.cancel_asked or run.attempts >= ATTEMPTS
        state = ReportRun.State.QUEUED
        if over:
            cancelled = run.cancel_asked
            state = ReportRun.State.CANCELLED if cancelled else ReportRun.State.FAILED
        try:
            with transaction.atomic():
                lost.filter(pk=run.pk).update(
                    state=state, ended_at=now if over else None, step="", queued_at=now,
                    error="its process vanished",
                )  # fmt: skip
        except IntegrityError:  # the same was asked for again and waits already
            lost.filter(pk=run.pk).update(
                state=ReportRun.State.FAILED, ended_at=now, error="its process vanished"
            )
    if ReportRun.objects.filter(state=ReportRun.State.RUNNING).exists():
        return []
    waiting = ReportRun.objects.filter(state=ReportRun.State.QUEUED).order_by("queued_at")
    return list(waiting.values_list("pk", flat=True))


def command_for(run: ReportRun, result: Path, name: str) -> list[str]:
    """The command line of the run's process."""
    options = settings.REPORTS
    start, conf = command_start()
    classes: list[str] = []
    if options["KEEP_CLASSES"] and not options["SUBMIT"]:
        kept = java.class_archive(settings.DATA_DIR)
        classes = [] if kept is None else ["--classes", str(kept)]
    return [
        *start, run.kind, "--record", settings.RECORD["URL"], "--start", run.start.isoformat(),
        "--end", run.end.isoformat(), "--run", name, "--result", str(result), "--tied",
        *(["--again"] if run.again else []), *classes,
        "--executor-wait", str(EXECUTOR_SECONDS), "--home", settings.DOMAIN, *conf,
    ]  # fmt: skip


def _spark(run: ReportRun, work: Path, told: Watcher | None) -> dict[str, Any]:
    java.check_spark()
    cluster.check_master(settings.REPORTS["MASTER"])
    _delete_left(work.parent)
    temporary = work / "temporary"
    temporary.mkdir(parents=True)
    result = work / "result.json"
    seen = time.monotonic()

    def look(progress: float | None, step: str) -> bool:
        nonlocal seen
        if progress is not None or time.monotonic() - seen >= _SIGN_OF_LIFE:
            seen = time.monotonic()
            if progress is not None:
                run.progress, run.step = progress, step
            _write(run, progress=run.progress, step=run.step, seen_at=timezone.now())
            if told is not None:
                told(run)
        return not ReportRun.objects.filter(pk=run.pk, cancel_asked=True).exists()

    def watch(progress: float | None, step: str) -> bool:
        try:
            return look(progress, step)
        except DatabaseError:  # away for a moment; if for longer, the run is found to be lost
            log.exception("the row of a run cannot be read or written")
            close_old_connections()
            return True

    process.run(
        command_for(run, result, work.name),
        environment(temporary),
        work / "log",
        time_limit=TIME_LIMIT,
        niceness=NICENESS,
        watch=watch,
    )
    loaded: dict[str, Any] = json.loads(result.read_text())
    return loaded


def _delete_left(folder: Path) -> None:
    """Delete the folders of runs whose worker was killed: one runs at a time, so all there are."""
    for each in folder.glob("*"):
        if _WORK.fullmatch(each.name):
            shutil.rmtree(each, ignore_errors=True)


def store(run: ReportRun, reports: list[dict[str, Any]], made_at: datetime) -> None:
    """Put the reports in place of older ones, a few in each transaction.

    Raises TakenOver.
    """
    for first in range(0, len(reports), _AT_ONCE):
        with transaction.atomic():
            _write(run, seen_at=timezone.now())
            for figures in map(_storable, reports[first : first + _AT_ONCE]):
                Report.objects.update_or_create(
                    kind=figures["kind"],
                    start=datetime.fromisoformat(figures["start"]),
                    defaults={
                        "end": datetime.fromisoformat(figures["end"]),
                        "made_at": made_at,
                        "run": run,
                        "rows": figures["rows"],
                        "hours_recorded": len(figures["hours_recorded"]),
                        "hours_of_period": figures["hours_of_period"],
                        "hours_incomplete": len(figures.get("hours_incomplete", [])),
                        "figures": figures,
                    },
                )


def _storable(figures: dict[str, Any]) -> dict[str, Any]:
    """The figures without zero bytes, which PostgreSQL takes in no JSON."""
    text = json.dumps(figures)
    if "\\u0000" not in text:
        return figures
    clean: dict[str, Any] = json.loads(text.replace("\\u0000", "\\ufffd"))
    return clean


def _tell_damage(run: ReportRun, result: dict[str, Any]) -> None:
    """Raise an alarm for the raw files that the reports lack; the run names those that it found."""
    damaged = result.get("damaged", [])
    run.warning = warning(damaged)
    lacking = [
        row for figures in result["reports"]
        for row in figures.get("tables", {}).get("damaged_files", [])
    ]  # fmt: skip
    raise_damaged([*lacking, *damaged])
    raise_ledgers(result.get("damaged_ledgers", []))
    tell_compaction(result.get("not_compacted", ""))


def _end_or_again(run: ReportRun) -> None:
    """A run that broke down waits for another attempt, if it has one left."""
    if run.attempts >= ATTEMPTS:
        return _end(run, ReportRun.State.FAILED)
    try:
        with transaction.atomic():
            _end(run, ReportRun.State.QUEUED)
    except IntegrityError:  # the same was asked for again and waits already
        _end(run, ReportRun.State.FAILED)


def _end(run: ReportRun, state: str, result: dict[str, Any] | None = None) -> None:
    now = timezone.now()
    ended: dict[str, Any] = {"state": state, "ended_at": now, "seen_at": now}
    if result is not None:
        ended |= {"progress": 1.0, "step": ""}
        ended |= {name: result[name] for name in ("rows_read", "hours_rolled", "peak_memory_mb")}
    _write(run, error=run.error, warning=run.warning, **ended)


def _write(run: ReportRun, **values: Any) -> None:
    """Change the row of a run, as long as this attempt of it is ours. Raises TakenOver."""
    ours = ReportRun.objects.filter(pk=run.pk, state=ReportRun.State.RUNNING, attempts=run.attempts)
    if not ours.update(**values):
        raise TakenOver(f"{run} is no longer ours")
    for name, value in values.items():
        setattr(run, name, value)


def command_start() -> tuple[list[str], list[str]]:
    """How the program of a run begins, and the settings that follow its own words."""
    options = settings.REPORTS
    conf = {"spark.master": options["MASTER"], "spark.driver.memory": DRIVER_MEMORY}
    conf |= dict(pair.split("=", 1) for pair in options["CONF"])
    path = str(Path(__file__).with_name("job_main.py"))
    if options["SUBMIT"]:
        return [options["SUBMIT"], *(f"--conf={k}={v}" for k, v in conf.items()), path], []
    return [sys.executable, path], [
        word for name, value in conf.items() for word in ("--conf", f"{name}={value}")
    ]


def environment(temporary: Path) -> dict[str, str]:
    """The environment of a program of Spark's.

    Args:
        temporary: the folder of its temporary files, which a Java that is killed leaves behind.

    Raises:
        java.NoJava: there is none.
    """
    named = settings.REPORTS["PYTHON"]
    more = os.environ.get("SPARK_SUBMIT_OPTS", "")
    own = {
        "TMPDIR": str(temporary),
        "LC_ALL": "C.UTF-8",  # or Java could not name files with other letters than ASCII's
        "SPARK_SUBMIT_OPTS": f'"-Djava.io.tmpdir={temporary}" {more}'.strip(),
    }
    return java.environment(settings.DATA_DIR) | own | ({"PYSPARK_PYTHON": named} if named else {})


ALARM = "record-damaged"
NOT_COMPACTED = "record-not-compacted"
_TEXT = 500
_FILES_NAMED = 5
_FILES_IN_A_RUN = 20


def raise_damaged(files: Iterable[Mapping[str, str]]) -> None:
    """An alarm for each hour of these files (hour, file, fault). Blocks."""
    hours: dict[str, dict[str, str]] = defaultdict(dict)
    for each in files:
        hours[f"{_hour_of(each):%Y-%m-%d %H:%M}"][each["file"]] = each["fault"]
    _raise({hour: _alarm_text(hour, faults) for hour, faults in hours.items()})


def raise_ledgers(names: Iterable[str]) -> None:
    """An alarm for each file of the roll-up's ledgers that could not be read. Blocks."""
    _raise(
        {
            name: f"The file {name} of the roll-up could not be read and is called "
            f"{name}.damaged now. Its hours are rolled up again from their rows; those whose rows "
            "are kept no longer are missing in reports made from now on."
            for name in names
        }
    )


def tell_compaction(fault: str) -> None:
    """Raise the alarm that hours are not compacted, or clear it. Blocks."""
    if not fault:
        alarms.clear_alarm(NOT_COMPACTED, "")
        return
    text = f"The many small files of an hour could not be made one, and no report is wrong: {fault}"
    alarms.raise_alarm(NOT_COMPACTED, "", text[:_TEXT])


def _raise(texts: Mapping[str, str]) -> None:
    told = set(Alarm.objects.filter(kind=ALARM, subject__in=texts).values_list("subject", "text"))
    alarms.raise_alarms(
        alarms.Raised(ALARM, about, text)
        for about, text in texts.items()
        if (about, text) not in told
    )


def warning(files: list[dict[str, str]]) -> str:
    """What a run says of these files; empty if there are none."""
    lines = [
        f"{_hour_of(each):%Y-%m-%d %H:%M} {each['file']}: {each['fault']}"
        for each in files[:_FILES_IN_A_RUN]
    ]
    if len(files) > _FILES_IN_A_RUN:
        lines.append(f"and {len(files) - _FILES_IN_A_RUN} more")
    return "\n".join(lines)


def _alarm_text(hour: str, faults: Mapping[str, str]) -> str:
    names = sorted(faults)
    more = f" and {len(names) - _FILES_NAMED} more" if len(names) > _FILES_NAMED else ""
    return (
        f"The traffic of {hour} UTC is incomplete: {len(names)} raw files are missing or damaged: "
        f"{', '.join(names[:_FILES_NAMED])}{more}; {faults[names[0]]}"
    )[:_TEXT]


def _hour_of(file: Mapping[str, str]) -> datetime:
    return datetime.fromisoformat(file["hour"]).astimezone(UTC)
