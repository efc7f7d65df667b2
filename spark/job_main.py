"""One run of the reports, in a process of its own: by `spark-submit` or as a plain program.

    run.py KIND --record URL --start 2026-11-20T00:00 --end 2026-11-21T00:00 --run ID --result FILE

It updates the roll-up for what the reports need, makes the reports of KIND for each period that
begins in [start, end), and writes them as JSON to FILE, under a temporary name first. Lines of JSON
on standard output report the progress. With --tied, the process and its group end when standard
input closes, because the parent has gone. Django is not loaded here.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

_HOME = str(Path(__file__).resolve().parent.parent)
sys.path[:] = [_HOME, *(path for path in sys.path if path not in (_HOME, f"{_HOME}/spark"))]
os.environ["TZ"] = "UTC"
time.tzset()

from pyspark.sql import SparkSession  # noqa: E402 (the paths and the time zone come first)

from spark.jobs import figures, periods, rolling, shipping, tiers  # noqa: E402
from spark.jobs.ledger import Entry, Ledger  # noqa: E402
from spark.jobs.ledger_tiers import DAYS, MONTHS  # noqa: E402
from spark.jobs.periods import Kind  # noqa: E402
from spark.jobs.storage import Storage  # noqa: E402

LATE = timedelta(hours=48)
"""How far back the hourly run looks for rows that came late."""
LAST_DAY = timedelta(hours=23)
ARCHIVE_SECONDS = 60.0
JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:MetaspaceSize=256m")
"""A run is short: compiling Java's code well, and collecting its rubbish in parallel, takes longer
than it saves, and twice the memory. Its classes grow to a known size and are not looked through."""
UNCOMPILED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For jobs over small tables: compiling a program for each takes longer than running it."""
UNCOMPILED_ROWS = 2_000_000
"""Rows of the record up to which the roll-up of their hours is a small table."""
SESSION = {
    "spark.app.name": "traffic reports",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    # 24 hours × 3 roles × 2 sketches are more groups than Spark would keep without sorting.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "4096",
    "spark.sql.files.openCostInBytes": "262144",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
EVERY_SECONDS = 1.0
_PROC = Path("/proc")


def session(options: dict[str, str], classes: Path | None = None) -> SparkSession:
    """A Spark session, on this machine tuned for short runs; a cluster keeps its own settings.

    `classes` is where Java's loaded classes are kept from one run to the next.
    """
    builder = SparkSession.builder
    local: dict[str, str] = {}
    if options.get("spark.master", "local").startswith("local"):
        # Spark's 200 would be 200 tiny tasks after each shuffle, and planning anew after each of
        # them takes longer than it saves. What listens on this machine alone need not be reached
        # from another one, even where the machine's name leads nowhere. Spark's Python workers are
        # this Python.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault(
            "SPARK_LAUNCHER_OPTS", " ".join(JAVA)
        )  # a Java that finds the command
        local = {
            "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
            "spark.sql.adaptive.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": " ".join(
                [
                    *JAVA,
                    *(f'"{each}"' for each in _class_options(classes)),
                ]  # a path may have spaces
            ),
        }
    for name, value in (SESSION | local | options).items():
        builder = builder.config(name, value)
    started = builder.getOrCreate()
    shipping.ship(started)
    return started


def await_executor(spark: SparkSession, limit: float) -> bool:
    """Whether an executor takes work within `limit` seconds; of itself Spark waits for ever."""
    if str(spark.sparkContext.master).startswith("local"):
        return True
    done = threading.Event()

    def ask() -> None:
        spark.range(1).count()
        done.set()

    threading.Thread(target=ask, daemon=True).start()
    return done.wait(limit)


def require_executor(spark: SparkSession, limit: float) -> None:
    """End this process, and say why, if no executor takes work within `limit` seconds."""
    if not await_executor(spark, limit):
        sys.stderr.write(
            f"No worker of the cluster gave this run an executor within {limit:g} s. "
            "Start workers (`manage.py spark_worker`), wait for those that are busy, or ask for "
            "less: spark.executor.memory, spark.executor.cores in SPARK_CONF.\n"
        )
        os._exit(1)  # the thread that asks still waits


def keep_classes(spark: SparkSession, classes: Path) -> None:
    """End Java, which then writes down the classes it loaded; the next one starts from there."""
    if classes.exists():
        return
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    made = _unfinished(classes)
    with suppress(OSError, subprocess.TimeoutExpired):
        if gateway.proc.wait(ARCHIVE_SECONDS) == 0:
            made.replace(classes)
    made.unlink(missing_ok=True)


def _class_options(classes: Path | None) -> list[str]:
    if classes is None:
        return []
    if classes.exists():
        return [f"-XX:SharedArchiveFile={classes}"]
    classes.parent.mkdir(parents=True, exist_ok=True)
    return [
        f"-XX:ArchiveClassesAtExit={_unfinished(classes)}",
        "-Xlog:cds=off",
        "-Xlog:class+path=off",
    ]


def _unfinished(classes: Path) -> Path:
    return classes.with_suffix(".unfinished")


class Ledgers(NamedTuple):
    """What is rolled up, by hour, day and month."""

    hours: Ledger
    days: Ledger
    months: Ledger


def make(
    spark: SparkSession,
    kind: Kind,
    record: str,
    start: datetime,
    end: datetime,
    run: str,
    *,
    again: bool = False,
    home: str = "",
    progress: rolling.Progress = lambda share, step: None,
) -> dict[str, Any]:
    """The reports of the periods that begin in [start, end), and what it took to make them.

    `home` is the node's own domain, in lower case.
    """
    raw = Storage(f"{record.rstrip('/')}/raw")
    rolled = Storage(f"{record.rstrip('/')}/roll-up")
    ledgers = Ledgers(Ledger(rolled), Ledger(rolled, DAYS), Ledger(rolled, MONTHS))
    book = ledgers.hours
    begun = _begun(kind, start, end)
    oldest = start - LATE
    if kind is not Kind.HOURLY:
        oldest = min(periods.before(kind, start), start - periods.HISTORY)
    last = periods.after(kind, begun[-1])
    progress(0.0, "looking for hours to roll up")
    there = book.entries(oldest, last)
    stale = rolling.stale_hours(raw, book, oldest, start)
    stale |= rolling.stale_hours(raw, book, start, last, again=again)
    rows = rolling.roll_up(spark, raw, book, stale, run, lambda s, step: progress(s * 0.6, step))
    _add_up(spark, kind, ledgers, (oldest, last), run, progress)
    progress(0.7, "making reports")
    _compile(spark, False)
    if kind is Kind.HOURLY:
        # All of the last day: a daily run may have rolled hours up that have no report yet.
        made = figures.hourly(spark, book, min([start - LAST_DAY, *stale]), last, home)
    else:
        made = _of_periods(spark, kind, ledgers, begun, home, progress)
    _compile(spark, True)
    progress(0.9, "compacting")
    over = datetime.now(UTC) - timedelta(hours=2)
    compacted = rolling.compact(spark, raw, book, oldest, min(last, over), run)
    damaged = _damaged_since(there, book.entries(oldest, last))
    return {
        "rows_read": rows,
        "hours_rolled": len(stale),
        "hours_compacted": compacted.hours,
        "not_compacted": compacted.fault,
        "damaged": figures.damaged_files(damaged),
        "damaged_ledgers": [name for ledger in ledgers for name in ledger.damaged_files()],
        "reports": made,
    }


def _add_up(
    spark: SparkSession,
    kind: Kind,
    ledgers: Ledgers,
    span: tuple[datetime, datetime],
    run: str,
    progress: rolling.Progress,
) -> None:
    """Add up the days of a span, and its months, as far as reports of this kind need them."""
    hours, days, months = ledgers
    if kind is not Kind.HOURLY:
        progress(0.6, "adding up days")
        _add_up_days(spark, hours, days, tiers.stale(hours, days, *span), run)
    if kind in (Kind.MONTHLY, Kind.YEARLY):  # each month once, and not twelve at the year's end
        progress(0.65, "adding up months")
        tiers.roll_up(spark, days, months, tiers.stale(days, months, *span), run)


def _of_periods(
    spark: SparkSession,
    kind: Kind,
    ledgers: Ledgers,
    begun: list[datetime],
    home: str,
    progress: rolling.Progress,
) -> list[dict[str, Any]]:
    tier = ledgers.months if kind is Kind.YEARLY else ledgers.days
    made = []
    for number, period in enumerate(begun):
        progress(0.7 + 0.2 * number / len(begun), f"making report {number + 1} of {len(begun)}")
        made.append(figures.of_period(spark, ledgers.hours, tier, kind, period, home))
    return made


def _add_up_days(
    spark: SparkSession, book: Ledger, by_day: Ledger, stale: list[datetime], run: str
) -> None:
    """Add up days; few rows are added up sooner without compiling."""
    if tiers.rows_of(book, by_day, stale) <= UNCOMPILED_ROWS:
        _compile(spark, False)
    tiers.roll_up(spark, book, by_day, stale, run)


def _begun(kind: Kind, start: datetime, end: datetime) -> list[datetime]:
    """When the periods begin that begin in [start, end)."""
    begun = [start]
    while periods.after(kind, begun[-1]) < end:
        begun.append(periods.after(kind, begun[-1]))
    return begun


def _damaged_since(
    before: dict[datetime, Entry], after: dict[datetime, Entry]
) -> dict[datetime, Entry]:
    """The hours that have lost other files than before."""
    lost = {hour: entry.lost for hour, entry in before.items()}
    return {hour: entry for hour, entry in after.items() if entry.lost != lost.get(hour, {})}


def _compile(spark: SparkSession, wanted: bool) -> None:
    for name, value in UNCOMPILED.items():
        if wanted:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


def main(arguments: list[str]) -> None:
    """The process of a run, from its arguments to its exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("kind", type=Kind, choices=list(Kind))
    parser.add_argument("--record", required=True, help="URL or path of the traffic record")
    parser.add_argument("--start", required=True, type=periods.utc_time)
    parser.add_argument("--end", required=True, type=periods.utc_time)
    parser.add_argument("--run", required=True, help="id of this run: letters, digits and -")
    parser.add_argument("--result", required=True, type=Path)
    parser.add_argument("--home", default="", help="the node's own domain, which is no peer")
    parser.add_argument(
        "--again", action="store_true", help="roll up hours that are up to date too"
    )
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument(
        "--executor-wait",
        type=float,
        default=60.0,
        help="seconds a cluster has to give an executor",
    )
    parser.add_argument("--classes", type=Path, help="where Java's classes are kept between runs")
    parser.add_argument("--tied", action="store_true", help="end with whoever holds standard input")
    given = parser.parse_args(arguments)
    if given.tied:
        threading.Thread(target=end_with_parent, daemon=True).start()
    _tell(0.0, "starting Spark")
    peak = Peak()
    spark = session(dict(pair.split("=", 1) for pair in given.conf), given.classes)
    require_executor(spark, given.executor_wait)
    result = make(
        spark, given.kind, given.record, given.start, given.end, given.run,
        again=given.again, home=given.home, progress=_tell,
    )  # fmt: skip
    result["peak_memory_mb"] = peak.mb()
    temporary = given.result.with_suffix(".tmp")
    temporary.write_text(json.dumps(result))
    temporary.replace(given.result)
    _tell(0.95, "ending Java")
    if given.classes is not None:
        keep_classes(spark, given.classes)
    else:
        spark.stop()


def _tell(share: float, step: str) -> None:
    sys.stdout.write(json.dumps({"progress": round(share, 3), "step": step}) + "\n")
    sys.stdout.flush()


def end_with_parent() -> None:
    """When standard input closes, whoever started this is gone: end the group."""
    while os.read(0, 1024):
        continue
    os.killpg(os.getpgrp(), signal.SIGKILL)


class Peak:
    """The most memory that this process and its descendants had at once, from now on.

    It is measured every second, because Python workers come and go. Memory that several processes
    share is counted once (the kernel's proportional set size); 0 if the kernel does not tell.
    """

    def __init__(self) -> None:
        self._bytes = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def mb(self) -> int:
        """The peak so far, in MiB."""
        self._look()
        return self._bytes // 1024**2

    def _watch(self) -> None:
        pause = threading.Event()
        while not pause.wait(EVERY_SECONDS):
            self._look()

    def _look(self) -> None:
        now = sum(map(_bytes_of, family(os.getpid())))
        with self._lock:  # a slow look must not put an older peak in place of a newer one
            self._bytes = max(self._bytes, now)


def family(of: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError):  # it ended
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    found = [of]
    for each in found:
        found += children.get(each, [])
    return found


def _bytes_of(process: int) -> int:
    with suppress(OSError):  # it ended, or is not ours to look at
        for line in (_PROC / str(process) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    main(sys.argv[1:])
