"""What a year of record costs: each kind of report, at several ages of the record.

The record is that of `bench.year_record`: 8,760 hours of a thousand million messages, by weight. At
the end of some of its months, the runs of the schedule are made one after another, each a process
from Java's start: the last hour is rolled up from its real rows, then its day, then its month. The
memory is that of all processes of the run; which files it opened, the file system's times of access
tell. Then 1,200 files of an hour are compacted, and retention looks at it all.

BENCH_YEAR names a folder with a record that was made before; making one takes ten minutes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import django
import pyarrow.parquet as pq

from bench import year_record
from bench.figures import PartResult, Ratio, Spread
from bench.plan import Plan
from bench.processes import ROOT
from msgnode.traffic.retention import delete_old
from spark import java
from spark.jobs import periods
from spark.jobs.ledger_tiers import TIERS
from spark.jobs.periods import Kind
from spark.jobs.record import folder_of

AGES = (1, 6, 12)  # months
FILES = 1_200  # of an hour whose node writes every three seconds
LIMIT = 200.0
HOUR = timedelta(hours=1)
_LONG_AGO = 1e9


def measure(plan: Plan) -> PartResult:
    result = PartResult(
        "year", "A year of record: seconds of a report, from Java's start", unit="seconds",
        headline="seconds",
    )  # fmt: skip
    named = os.environ.get("BENCH_YEAR")
    place = Path(named) if named else plan.servers.directory / "year"
    os.environ["JAVA_HOME"] = java.environment(plan.servers.directory)["JAVA_HOME"]
    if not (place / "year" / "roll-up" / "months").exists():
        _said("bench.year_record", place)
        plan.say("the year is there")
    for turn in range(min(plan.rounds, 3)):
        for months in AGES[1:] if plan.quick else AGES:
            record = _at_age(place, months, plan.servers.directory / f"age-{months}")
            for kind in Kind:
                sample = _run(record, kind, months, f"{kind}-{months}-{turn}", plan)
                result.case(str(kind), _age(months)).samples.append(sample)
                told = ", ".join(f"{name} {value:,.1f}" for name, value in sample.items())
                plan.say(f"{kind}, {_age(months)}: {told}")
    for kind in Kind:
        young, old = (result.case(str(kind), _age(months)) for months in (AGES[-2], AGES[-1]))
        pairs = zip(old.values("seconds"), young.values("seconds"), strict=True)
        spread = Spread.of([mine / theirs for mine, theirs in pairs])
        result.ratios.append(Ratio(str(kind), "seconds", _age(12), _age(6), spread, 2.2, "at most"))
    result.notes += _upkeep(place, record, plan)
    return result


def _age(months: int) -> str:
    return f"{months} month{'s' if months > 1 else ''}"


def _end(months: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=year_record.YEAR.tzinfo) if months == 12 else datetime(
        2025, months + 1, 1, tzinfo=year_record.YEAR.tzinfo
    )  # fmt: skip


def _at_age(place: Path, months: int, record: Path) -> Path:
    """The record as it is when the last hour of its last month is to be rolled up."""
    shutil.rmtree(record, ignore_errors=True)
    rolled, end = place / "year" / "roll-up", _end(months)
    (record / "roll-up").mkdir(parents=True)
    (record / "roll-up" / "runs").symlink_to((rolled / "runs").resolve())
    last = end - HOUR
    for tier in TIERS:
        folder = record / "roll-up" / tier.folder
        folder.mkdir()
        for file in (rolled / tier.folder).glob("*.json"):
            entries = json.loads(file.read_text())
            kept = {
                key: entry
                for key, entry in entries.items()
                if datetime.strptime(f"{file.stem} {key}", f"{tier.file} {tier.key}").replace(
                    tzinfo=last.tzinfo
                ) < tier.floor(last)
            }  # fmt: skip
            if kept:
                (folder / file.name).write_text(json.dumps(kept))
    like = year_record.END - 7 * 24 * HOUR  # the real hour of the same weekday
    while (like.weekday(), like.hour) != (last.weekday(), last.hour):
        like += HOUR
    source = year_record.week(place) / "raw" / folder_of(like)
    shutil.copytree(source, record / "raw" / folder_of(last))
    return record


def _run(record: Path, kind: Kind, months: int, name: str, plan: Plan) -> dict[str, float]:
    start = periods.start_of(kind, _end(months) - HOUR)
    result = plan.servers.directory / f"{name}.json"
    files = [path for path in _every(record) if path.suffix in (".parquet", ".json")]
    for path in files:
        os.utime(path, (_LONG_AGO, path.stat().st_mtime))
    classes = java.class_archive(plan.servers.directory)
    began = time.perf_counter()
    ended = subprocess.run(
        [
            sys.executable, str(ROOT / "spark" / "job_main.py"), str(kind), "--record", str(record),
            "--start", start.isoformat(), "--end", periods.after(kind, start).isoformat(),
            "--run", name, "--result", str(result), "--conf", "spark.driver.memory=2g",
            "--conf", f"spark.master=local[{os.cpu_count()}]",
            *(["--classes", str(classes)] if classes else []),
        ],
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    if ended.returncode:
        raise RuntimeError(f"{name} ended with {ended.returncode}: {ended.stderr[-2000:]}")
    made: dict[str, Any] = json.loads(result.read_text())
    return {
        "seconds": seconds,
        "memory_mb": made["peak_memory_mb"],
        "files": sum(_was_opened(path) for path in files),
        "messages": made["reports"][-1]["totals"]["messages"],
    }


def _was_opened(file: Path) -> bool:
    """Whether a run read `file`; one that it compacted away, it read first."""
    return not file.exists() or file.stat().st_atime > _LONG_AGO


def _every(record: Path) -> list[Path]:
    return [
        Path(folder) / name
        for folder, _, names in os.walk(record, followlinks=True)
        for name in names
    ]


def _upkeep(place: Path, record: Path, plan: Plan) -> list[str]:
    """Compaction of an hour of many files, and retention, in words."""
    busy = _end(12) - 3 * HOUR
    folder = record / "raw" / folder_of(busy)
    real = (year_record.week(place) / "raw" / folder_of(busy)).glob("*.parquet")
    rows = pq.read_table(max(real, key=lambda path: path.stat().st_size))
    folder.mkdir(parents=True, exist_ok=True)
    many = max(1, len(rows) // FILES)
    for number in range(FILES):
        part = rows.slice(number * many, many if number < FILES - 1 else None)
        pq.write_table(part, folder / f"w-{number:06d}.parquet", compression="zstd")
    first = _run(record, Kind.HOURLY, 12, "compacting", plan)
    after = len(list(folder.glob("*.parquet")))
    second = _run(record, Kind.HOURLY, 12, "compacted", plan)
    began = time.perf_counter()
    hours = delete_old(str(record), _end(12) + timedelta(days=40), days=30, max_bytes=1 << 40)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "msgnode.settings")
    django.setup()
    from spark import retention  # needs Django, which no other part should have to start

    retention.delete_old_roll_ups(str(record), _end(12), 800)  # which looks at all, and keeps it
    seconds = time.perf_counter() - began
    return [
        f"an hour of {FILES:,} files: {first['seconds']:.1f} s with its roll-up and compaction to "
        f"{after}, {second['seconds']:.1f} s in the run after it",
        f"retention: {hours} hours of raw rows deleted, roll-up looked through: {seconds:.1f} s",
        f"{len(list((place / 'year' / 'roll-up' / 'runs').iterdir())):,} runs' tables in the year",
    ]


def _said(program: str, *words: object) -> None:
    subprocess.run([sys.executable, "-m", program, *map(str, words)], cwd=ROOT, check=True)
