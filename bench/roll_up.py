"""One process of Spark that rolls a record up twice and says how long each took, as a line of JSON.

    python -m bench.roll_up RECORD RUN START END CORES [CLASSES]

Times are without the start of the session, which is told apart; processor time and memory are those
of Java, its Python workers and this process.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.processes import cpu_seconds
from spark import job_main
from spark.job_main import Peak, family
from spark.jobs import rolling, schema
from spark.jobs.ledger import Ledger
from spark.jobs.storage import Storage


def main(record: str, name: str, start: str, end: str, cores: str, classes: str = "") -> None:
    began, peak = time.perf_counter(), Peak()
    options = {"spark.master": f"local[{cores}]", "spark.driver.memory": "2g"}
    kept = Path(classes) if classes else None
    spark = job_main.session(options, kept)
    said: dict[str, Any] = {"start_s": time.perf_counter() - began}
    raw, book = Storage(f"{record}/raw"), Ledger(Storage(f"{record}/roll-up"))
    for which in ("first", "second"):
        began, used = time.perf_counter(), _processor_seconds()
        hours = (datetime.fromisoformat(start), datetime.fromisoformat(end))
        stale = rolling.stale_hours(raw, book, *hours, again=True)
        rolling.roll_up(spark, raw, book, stale, f"{name}-{which}", lambda share, step: None)
        said[f"{which}_s"] = time.perf_counter() - began
        said[f"{which}_cpu_s"] = _processor_seconds() - used
    said["tables"] = {table: book.tables_of(f"{name}-second-0", table) for table in schema.ROLL_UP}
    said["peak_mb"] = peak.mb()
    if kept is None:
        spark.stop()
    else:
        job_main.keep_classes(spark, kept)
    sys.stdout.write(json.dumps(said) + "\n")


def _processor_seconds() -> float:
    """Of this process and all that it started."""
    return sum(map(cpu_seconds, family(os.getpid())))


if __name__ == "__main__":
    main(*sys.argv[1:])
