"""The Spark process of the stream: follows the record's new files and reports the last minutes.

    stream.py --record URL --checkpoint DIR --results DIR

Structured Streaming tells every few seconds which hours have new files; these hours are rolled up
as by a scheduled run, completely, so that an hour has the same numbers whoever rolled it up last.
Their reports are written as JSON to a file in RESULTS, which a line of JSON on standard output
names. It ends at its first failure: the checkpoint tells where the next process continues. Django
is not loaded here.
"""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path

_HOME = str(Path(__file__).resolve().parent.parent)
sys.path[:] = [_HOME, *(path for path in sys.path if path not in (_HOME, f"{_HOME}/spark"))]

import json  # noqa: E402 (the paths come first)
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from datetime import UTC, datetime, timedelta  # noqa: E402
from typing import Any  # noqa: E402

from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from pyspark.sql.streaming.query import StreamingQuery  # noqa: E402

from spark import job_main  # noqa: E402
from spark.jobs import changes, figures, record, rolling  # noqa: E402
from spark.jobs.ledger import Ledger  # noqa: E402
from spark.jobs.storage import File, Storage  # noqa: E402

REPLACED_KEPT = 900.0
"""Seconds after which tables that a later batch replaced are deleted: somebody may read them."""
Result = dict[str, Any]


class Stream:
    """Follows the record below `url`; `told` is given what each batch made.

    `home` is the node's own domain, in lower case.
    """

    def __init__(
        self, spark: SparkSession, url: str, home: str, told: Callable[[Result], None]
    ) -> None:
        self._spark = spark
        self._home = home
        self._told = told
        self._raw = Storage(f"{url.rstrip('/')}/raw")
        self._rolled = Storage(f"{url.rstrip('/')}/roll-up")
        self._made: list[tuple[float, str, datetime]] = []  # when, run, first of its hours

    def start(self, checkpoint: str, every: float) -> StreamingQuery:
        """Begin, or go on from the checkpoint, looking each `every` seconds."""
        self._spark.dataSource.register(changes.ChangedHours)
        back = job_main.LATE // timedelta(hours=1)
        source = self._spark.readStream.format(changes.NAME).options(
            root=self._raw.root, hours=str(back)
        )
        sink = source.load().writeStream.foreachBatch(self._take)
        return (
            sink.option("checkpointLocation", checkpoint)
            .trigger(processingTime=f"{every} seconds")
            .start()
        )

    def _take(self, batch: DataFrame, number: int) -> None:
        """Roll up what the ledger does not stand for yet: another run may have been faster."""
        began = datetime.now(UTC)
        book = Ledger(self._rolled)
        stale: dict[datetime, list[File]] = {}
        for row in batch.collect():
            hour = datetime.fromtimestamp(row["hour"], UTC)
            files = record.files_of(self._raw, hour)
            entry = book.entry(hour)
            if files and (entry is None or entry.inputs != record.fingerprint(files)):
                stale[hour] = files
        if not stale:
            return
        run = f"stream-{number}-{time.time_ns():x}"
        rows = rolling.roll_up(self._spark, self._raw, book, stale, run, _silent)
        end = max(stale) + timedelta(hours=1)
        reports = figures.hourly(self._spark, book, min(stale), end, self._home)
        made = [each for each in reports if datetime.fromisoformat(each["start"]) in stale]
        self._told({"at": began.isoformat(), "rows_read": rows, "reports": made})
        self._made.append((time.monotonic(), f"{run}-0", min(stale)))
        self._delete_replaced(book)

    def _delete_replaced(self, book: Ledger) -> None:
        """Delete older tables of ours that count for nothing: an hour has a batch each minute."""
        old = [each for each in self._made if each[0] < time.monotonic() - REPLACED_KEPT]
        for each in old:
            self._made.remove(each)
            _, run, first = each
            there = book.entries(first, first + job_main.LATE + changes.AHEAD)
            if run not in {entry.run for entry in there.values()}:
                self._rolled.remove(self._rolled.at("runs", run))


def _silent(share: float, step: str) -> None:
    return None


def main(arguments: list[str]) -> None:
    """The process of the stream; returns when the query ends, raises what it failed with."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--record", required=True, help="URL or path of the traffic record")
    parser.add_argument("--checkpoint", required=True, help="where Spark keeps how far it has come")
    parser.add_argument("--results", required=True, type=Path)
    parser.add_argument("--every", type=float, default=60.0, help="seconds between looks")
    parser.add_argument("--home", default="", help="the node's own domain, which is no peer")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--executor-wait", type=float, default=60.0)
    parser.add_argument("--tied", action="store_true", help="end with whoever holds standard input")
    given = parser.parse_args(arguments)
    if given.tied:
        threading.Thread(target=job_main.end_with_parent, daemon=True).start()
    spark = job_main.session(dict(pair.split("=", 1) for pair in given.conf))
    job_main.require_executor(spark, given.executor_wait)

    def told(result: Result) -> None:
        name = f"{time.time_ns():x}.json"
        temporary = given.results / f"{name}.tmp"
        temporary.write_text(json.dumps(result))
        temporary.replace(given.results / name)
        _say(name)

    query = Stream(spark, given.record, given.home, told).start(given.checkpoint, given.every)
    _say("")
    query.awaitTermination()


def _say(name: str) -> None:
    sys.stdout.write(json.dumps({"progress": 0.0, "step": name}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
