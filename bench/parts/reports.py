"""The hourly roll-up by Spark against the same figures by DuckDB, and a daily report from start.

Both read the same files and write the same tables (traffic between domains, parties, latency
histogram, distinct parties), on as many cores, in turns, without Spark's start. DuckDB counts
distinct parties exactly, Spark makes sketches that can be merged (0.8 %). The first round of Spark
runs on a cold JVM, as every scheduled run does: it is a case of its own. The daily report is the
process that the schedule starts, Spark's start included.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

from bench.figures import PartResult, ratio
from bench.plan import Plan
from bench.processes import ROOT
from msgnode.traffic.files import RecordFiles
from msgnode.traffic.generate import Plan as Traffic
from msgnode.traffic.generate import hours
from spark import java, run
from spark.jobs import rolling
from spark.jobs.ledger import Ledger
from spark.jobs.storage import Storage

END = datetime(2026, 11, 20, tzinfo=UTC)
START = END - timedelta(days=1)
AT_MOST = 4.0
SECONDS = 20.0
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
            {to} as td, type, component, outcome, effect, rule, code, sum(m), sum(b), sum(d), sum(a)
        from heads group by all""",
    "parties": """
        select date, hour, 'talker' as role, sender as address, count(*), sum(size), sum(listeners)
            from {rows} group by all
        union all select date, hour, 'runtime', runtime, count(*), sum(size), sum(listeners)
            from {rows} group by all
        union all select date, hour, 'listener', "to", count(*), sum(size), sum(listeners)
            from {rows} where outcome in ('delivered', 'answered', 'queued') group by all""",
    "latency": """
        select date, hour, type, component, ceil(ln(greatest(latency_us, 1)) / ln(1.04))::int as b,
            count(*), max(latency_us)
        from {rows} where outcome in ('delivered', 'answered') group by all""",
    "distinct": "select date, hour, role, count(*) from '{out}/parties.parquet' group by all",
}


def measure(plan: Plan) -> PartResult:
    result = PartResult("reports", "Hourly roll-up, rows per second")
    sizes = (200_000,) if plan.quick else (1_000_000, 10_000_000)
    cores = os.cpu_count() or 1
    directory = plan.servers.directory
    os.environ["JAVA_HOME"] = java.environment(directory)["JAVA_HOME"]
    for rows in sizes:
        record = directory / f"record-{rows}"
        _fill(record, rows)
        title = f"{rows:,} rows"
        spark = run.session({"spark.master": f"local[{cores}]", "spark.driver.memory": "2g"})
        try:
            cold = _spark(spark, record, "cold")
            result.case(title, "Spark, first run").samples.append({"rate": rows / cold})
            for turn in range(plan.rounds):
                seconds = _duckdb(record, directory / f"duckdb-{rows}", cores)
                result.case(title, "DuckDB").samples.append({"rate": rows / seconds})
                seconds = _spark(spark, record, f"r{turn}")
                result.case(title, "Spark").samples.append({"rate": rows / seconds})
                plan.say(f"a round of {title}")
            peak = run._peak_memory_mb(spark)
        finally:
            spark.stop()
        fast, slow = result.case(title, "DuckDB"), result.case(title, "Spark")
        result.ratios.append(ratio(fast, slow, target=AT_MOST, wants="at most"))
        size = sum(path.stat().st_size for path in record.rglob("raw/**/*.parquet"))
        result.notes.append(
            f"{title}: Java's peak memory {peak} MB, record {size / rows:.0f} bytes a row"
        )
        took = _daily(record, directory, cores)
        verdict = "met" if took <= SECONDS else "missed"
        result.notes.append(
            f"{title}: daily report {took:.1f} s, aimed at {SECONDS:g} s: {verdict}"
        )
    return result


def _fill(record: Path, rows: int) -> None:
    files = RecordFiles(f"{record}/raw", "bench", max_bytes=1 << 40, min_free=0)
    for hour, table in hours(Traffic(rows, 1, 7, END)):
        files.write(int(hour.timestamp()), table)


def _spark(spark: Any, record: Path, name: str) -> float:
    raw, book = Storage(spark, f"{record}/raw"), Ledger(Storage(spark, f"{record}/roll-up"))
    began = time.perf_counter()
    stale = rolling.stale_hours(raw, book, START, END, again=True)
    rolling.roll_up(spark, raw, book, stale, name, lambda share, step: None)
    return time.perf_counter() - began


def _duckdb(record: Path, out: Path, cores: int) -> float:
    out.mkdir(exist_ok=True)
    words = {
        "rows": _ROWS.format(record=record),
        "from_": _DOMAIN.format("f"),
        "to": _DOMAIN.format("t"),
        "out": out,
    }
    began = time.perf_counter()
    with duckdb.connect(config={"threads": cores}) as database:
        for name, query in _QUERIES.items():
            database.execute(f"copy ({query.format(**words)}) to '{out}/{name}.parquet'")
    return time.perf_counter() - began


def _daily(record: Path, directory: Path, cores: int) -> float:
    """Seconds of the process that makes a daily report of hours that are rolled up."""
    began = time.perf_counter()
    subprocess.run(
        [
            sys.executable, str(ROOT / "spark" / "run.py"), "daily", "--record", str(record),
            "--start", START.isoformat(), "--end", END.isoformat(), "--run", "daily",
            "--result", str(directory / "daily.json"), "--conf", f"spark.master=local[{cores}]",
            "--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    return time.perf_counter() - began
