"""The hourly roll-up by Spark against the same figures by DuckDB, and a daily report from start.

Both read the same files and write the same tables (traffic between domains, parties, latency
histogram, distinct parties), on as many cores, in turns; that the tables say the same is checked.
DuckDB counts distinct parties exactly, Spark makes sketches that can be merged (0.8 %).

Spark's figure is that of a fresh process without the start of its session, as the schedule runs it:
nothing is warmed up. A second roll-up in the same process is shown beside it. The daily report is
the process that the schedule starts, Spark's start included: the hours of the day are rolled up,
each by a run of its own, the day is not yet, and there are four weeks before it. Another one is of
the largest record, all in one day. Java's kept classes are there in all of them, as in every run
but the first of an installation.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

from bench.figures import PartResult, Ratio, Spread, ratio
from bench.plan import Plan
from bench.processes import ROOT
from msgnode.traffic.files import RecordFiles
from msgnode.traffic.generate import Plan as Traffic
from msgnode.traffic.generate import hours
from spark import java

END = datetime(2026, 11, 20, tzinfo=UTC)
START = END - timedelta(days=1)
AT_MOST = 4.0  # times DuckDB's time, at the rows WANTED
WANTED = 10_000_000
A_DAY, DAYS = 200_000, 29  # rows a day and days of the record that a daily report is made of
SECONDS = 20.0
ROUNDS = 3
LIMIT = 300.0  # seconds of one process
_ROWS = "read_parquet('{record}/raw/*/*/*.parquet', hive_partitioning = true)"
_DOMAIN = (
    "regexp_replace(lower(regexp_extract({0}, '^[^:/]+://([^/]*)', 1)), "
    "'^(msg-node|registry|idm|catalogue|qos)\\.', '')"
)
_QUERIES = {
    "traffic": """
        with heads as (
            select date, hour, regexp_extract(sender, '^[^/]*//[^/]*') as f,
                regexp_extract("to", '^[^/]*//[^/]*') as t, type, component, outcome, effect, rule,
                code, count(*) as m, sum(size) as b, sum(listeners) as d, sum(asserted::int) as a
            from {rows} group by all)
        select date, hour, split_part(f, ':', 1) as fs, {from_} as fd, split_part(t, ':', 1) as ts,
            {to} as td, type, component, outcome, effect, rule, code, sum(m) as messages,
            sum(b), sum(d), sum(a)
        from heads group by all""",
    "parties": """
        select date, hour, 'talker' as role, sender as address, count(*) as messages, sum(size),
            sum(listeners) from {rows} group by all
        union all select date, hour, 'runtime', coalesce(nullif(runtime, ''), session),
            count(*), sum(size), sum(listeners) from {rows} group by all
        union all select date, hour, 'listener', "to", count(*), sum(size), sum(listeners)
            from {rows} where outcome in ('delivered', 'answered', 'queued') group by all""",
    "latency": """
        select date, hour, type, component, ceil(ln(greatest(latency_us, 1)) / ln(1.04))::int as b,
            count(*) as messages, max(latency_us)
        from {rows} where outcome in ('delivered', 'answered') group by all""",
    "distinct": "select date, hour, role, count(*) from '{out}/parties.parquet' group by all",
}


def measure(plan: Plan) -> PartResult:
    result = PartResult("reports", "Hourly roll-up, rows per second")
    sizes = (200_000,) if plan.quick else (1_000_000, WANTED)
    cores = os.cpu_count() or 1
    directory = plan.servers.directory
    os.environ["JAVA_HOME"] = java.environment(directory)["JAVA_HOME"]
    records = {rows: directory / f"record-{rows}" for rows in sizes}
    for rows, record in records.items():
        _fill(record, rows)
    scheduled = directory / "scheduled"
    _fill(scheduled, A_DAY * DAYS, DAYS)
    _said("bench.scheduled", scheduled, START.isoformat(), END.isoformat(), cores)
    _run("hourly", records[sizes[0]], directory, cores, "first")  # leaves Java's classes
    plan.say("records filled")
    for rows, record in records.items():
        title = f"{rows:,} rows"
        peaks, daily = [], []
        for turn in range(min(plan.rounds, ROUNDS)):
            seconds, cpu = _duckdb(record, directory / f"duckdb-{rows}", cores)
            result.case(title, "DuckDB").samples.append(_sample(rows, seconds, cpu))
            made = _roll_up(record, directory, cores, f"r{turn}")
            _check(directory / f"duckdb-{rows}", made["tables"])
            first = _sample(rows, made["first_s"], made["first_cpu_s"])
            result.case(title, "Spark").samples.append(first | {"start_s": made["start_s"]})
            second = _sample(rows, made["second_s"], made["second_cpu_s"])
            result.case(title, "Spark, again").samples.append(second)
            peaks.append(made["peak_mb"])
            if rows == sizes[-1]:
                daily.append(_daily(record, directory, cores, f"daily-{turn}"))
            plan.say(f"a round of {title}")
        fast = result.case(title, "DuckDB")
        for slow in ("Spark", "Spark, again"):
            target = AT_MOST if slow == "Spark" and rows == WANTED else None
            result.ratios.append(ratio(fast, result.case(title, slow), "rate", target, "at most"))
        result.ratios.append(ratio(result.case(title, "Spark"), fast, "cpu_s", wants="at most"))
        if daily:
            result.ratios.append(_seconds(f"{title} in the day", daily, SECONDS))
        size = sum(path.stat().st_size for path in record.rglob("raw/**/*.parquet"))
        result.notes.append(
            f"{title}: peak memory of the run's processes together (driver, Java, Python workers) "
            f"{max(peaks):.0f} MB, record {size / rows:.0f} bytes a row"
        )
    usual = [_daily(scheduled, directory, cores, f"scheduled-{turn}") for turn in range(ROUNDS)]
    result.ratios.append(_seconds(f"{A_DAY:,} rows in the day", usual, SECONDS))
    if len(sizes) > 1:
        small, large = (result.case(f"{rows:,} rows", "Spark") for rows in sizes)
        result.ratios.append(
            Ratio("growth", f"seconds, {sizes[1] // sizes[0]} times the rows", "Spark", "Spark",
                  Spread.of([b / a for a, b in zip(small.values("seconds"),
                                                   large.values("seconds"), strict=True)]),
                  sizes[1] / sizes[0], "at most")
        )  # fmt: skip
    return result


def _seconds(title: str, daily: list[float], target: float | None) -> Ratio:
    what = "a daily report, from Java's start"
    return Ratio(title, "seconds", what, "one second", Spread.of(daily), target, "at most")


def _sample(rows: int, seconds: float, cpu: float) -> dict[str, float]:
    return {"rate": rows / seconds, "seconds": seconds, "cpu_s": cpu}


def _fill(record: Path, rows: int, days: int = 1) -> None:
    files = RecordFiles(f"{record}/raw", "bench", max_bytes=1 << 40, min_free=0)
    for hour, table in hours(Traffic(rows, days, 7, END)):
        files.write(int(hour.timestamp()), table)


def _duckdb(record: Path, out: Path, cores: int) -> tuple[float, float]:
    out.mkdir(exist_ok=True)
    words = {
        "rows": _ROWS.format(record=record),
        "from_": _DOMAIN.format("f"),
        "to": _DOMAIN.format("t"),
        "out": out,
    }
    began, used = time.perf_counter(), time.process_time()
    with duckdb.connect(config={"threads": cores}) as database:
        for name, query in _QUERIES.items():
            database.execute(f"copy ({query.format(**words)}) to '{out}/{name}.parquet'")
    return time.perf_counter() - began, time.process_time() - used


def _classes(directory: Path) -> list[str]:
    """Where Java's classes are kept, if this Java can keep any."""
    kept = java.class_archive(directory)
    return [] if kept is None else ["--classes", str(kept)]


def _roll_up(record: Path, directory: Path, cores: int, run: str) -> dict[str, Any]:
    """What bench.roll_up says of its process."""
    times = (START.isoformat(), END.isoformat())
    classes = _classes(directory)[1:]
    said = _said("bench.roll_up", record, run, *times, cores, *classes).splitlines()[-1]
    found: dict[str, Any] = json.loads(said)
    return found


def _said(program: str, *words: object) -> str:
    """What a program of ours with a Spark of its own says."""
    made = subprocess.run(
        [sys.executable, "-m", program, *map(str, words)], cwd=ROOT, capture_output=True,
        text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    if made.returncode:
        raise RuntimeError(f"{program} ended with {made.returncode}: {made.stderr[-2000:]}")
    return made.stdout


def _check(duckdbs: Path, tables: dict[str, str]) -> None:
    """Raise if the two did not compute the same."""
    with duckdb.connect() as database:
        for name, folder in tables.items():
            if name in ("distinct", "sessions"):
                continue  # exact here, sketches there; there are no sessions in this record
            asked = "select count(*), sum(messages)::bigint from"
            ours = database.execute(f"{asked} '{folder}/*.parquet'").fetchone()
            found = database.execute(f"{asked} '{duckdbs}/{name}.parquet'").fetchone()
            if ours != found:
                raise RuntimeError(f"{name}: Spark has (rows, messages) {ours}, DuckDB {found}")


def _daily(record: Path, directory: Path, cores: int, run: str) -> float:
    """Seconds of the process that makes a daily report of hours that are rolled up, and of a day
    that is not."""
    for ledger in record.glob("roll-up/days/*.json"):
        days = json.loads(ledger.read_text())
        days.pop(f"{START:%d}", None)
        ledger.write_text(json.dumps(days))
    return _run("daily", record, directory, cores, run)


def _run(kind: str, record: Path, directory: Path, cores: int, name: str) -> float:
    """Seconds of a run's process."""
    began = time.perf_counter()
    subprocess.run(
        [
            sys.executable, str(ROOT / "spark" / "job_main.py"), kind, "--record", str(record),
            "--start", START.isoformat(), "--end", END.isoformat(), "--run", name,
            "--result", str(directory / "daily.json"), "--conf", f"spark.master=local[{cores}]",
            *_classes(directory),
        ],
        check=True, capture_output=True, timeout=LIMIT,
    )  # fmt: skip
    return time.perf_counter() - began
