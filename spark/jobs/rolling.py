"""Updates the roll-up.

It finds the hours whose raw files are not in the roll-up, aggregates them in one pass, and enters
them in the ledger.

If that fails, each file is read by itself. Damaged or missing ones are left out, the hour's entry
names them, and then they are set aside: if a run is killed in between, the next one finds them
again.

A file is damaged if its content cannot be decoded, or lacks columns of the record, in two reads of
it alone: one in a Python worker of Spark, one here. A file system error, a missing permission or
too little memory proves nothing: it is raised, and the run is retried.

    date=2026-11-21/hour=13/<name>.parquet.damaged    set aside: kept as long as its hour, not read
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark.jobs import compaction, hourly, record, schema, tables
from spark.jobs.counting import RECORD, batches_of
from spark.jobs.ledger import Entry, Ledger
from spark.jobs.parallel import run_parallel
from spark.jobs.places import place
from spark.jobs.storage import File, Storage

SUFFIX = ".damaged"
GONE = "it is no longer there"
MISSING = "it was not restored: copy it to RECORD_URL"
Faults = dict[datetime, dict[str, str]]
"""hour → name of a file → what is wrong with it."""
_LONGEST = 200


def faults_in(
    spark: SparkSession, raw: Storage, hours: Mapping[datetime, Sequence[File]]
) -> Faults:
    """The files that are damaged or gone.

    Raises what says nothing about a file: an error of the file system, a missing permission, too
    little memory.
    """
    every = record.pieces(spark, hours, piece_bytes=0)
    suspects = every.mapInArrow(_suspects(raw.root), "hour long, folder string, name string")
    found: Faults = {}
    for row in suspects.collect():
        fault = fault_of(raw.seen, raw.seen_at(raw.at(row["folder"], row["name"])))
        if fault:
            hour = datetime.fromtimestamp(row["hour"], UTC)
            found.setdefault(hour, {})[row["name"]] = fault
    return found


def set_aside(raw: Storage, hour: datetime, faults: Mapping[str, str]) -> None:
    """Rename the damaged files of an hour, so that nobody reads them as rows.

    One that cannot be renamed stays, and the next run finds it again.
    """
    folder = raw.at(record.folder_of(hour))
    for name, fault in faults.items():
        if fault in (GONE, MISSING):
            continue
        try:
            if name.endswith(".pending"):  # it stands no longer for the files it was made of
                raw.remove(f"{folder}/{record.decision_of(name)}")
            raw.rename(f"{folder}/{name}", f"{folder}/{name}{SUFFIX}")
        except Exception:
            log.exception("a damaged file cannot be renamed: %s/%s", folder, name)


def fault_of(system: fs.FileSystem, path: str) -> str:
    """What is wrong with the content of a file, or that it is gone; empty if it is sound.

    Raises OSError, MemoryError.
    """
    try:
        opened = system.open_input_file(path)
    except FileNotFoundError:
        return GONE
    with opened, _Watched(opened) as watched:
        try:
            for batch in batches_of(pa.PythonFile(watched, "r"), RECORD):
                batch.validate(full=True)
        except MemoryError:
            raise
        except (pa.ArrowException, OSError, ValueError) as fault:
            # Arrow says OSError of bytes that it cannot decode, too.
            if watched.failed is not None:
                raise watched.failed from fault
            return (" ".join(str(fault).split()) or type(fault).__name__)[:_LONGEST]
    return ""


class _Watched(io.RawIOBase):
    """An open file that remembers the error of a read that failed."""

    def __init__(self, source: Any) -> None:
        super().__init__()
        self.failed: Exception | None = None
        self._source = source

    def read(self, size: int | None = -1) -> bytes:
        try:
            return bytes(self._source.read(None if size is None or size < 0 else size))
        except Exception as error:
            self.failed = error
            raise

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._source.seek(offset, whence))

    def tell(self) -> int:
        return int(self._source.tell())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


def _suspects(root: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What `mapInArrow` calls: files (hour, folder, names) in, those with a fault out."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        system, folder_of_all = place(root)
        for piece in (piece for batch in batches for piece in batch.to_pylist()):
            folder = piece["folder"]
            for name in piece["names"]:
                if fault_of(system, f"{folder_of_all}/{folder}/{name}"):
                    row = {"hour": piece["hour"], "folder": folder, "name": name}
                    yield pa.RecordBatch.from_pylist([row])

    return run


log = logging.getLogger(__name__)

HOURS_AT_ONCE = 24 * 7
ATTEMPTS = 3
"""Of a roll-up, each without the files that the one before found damaged."""
_LONGEST_FAULT = 300
LATE = "it came after the other rows of its hour were deleted"
Progress = Callable[[float, str], None]


def stale_hours(
    raw: Storage, ledger: Ledger, start: datetime, end: datetime, *, again: bool = False
) -> dict[datetime, list[File]]:
    """Hours with raw files that the roll-up does not stand for (all of them, if `again`).

    And those it does not know, of which every file is missing on a restored node.
    """
    found = {}
    for hour, listed in record.recorded_hours(raw, start, end).items():
        files = record.files_of(raw, hour, listed)
        entry = ledger.entry(hour)
        is_stale = again or entry is None or entry.inputs != record.fingerprint(files)
        if (files and is_stale) or (entry is None and record.missing_of(raw, hour, listed)):
            found[hour] = files
    return found


def roll_up(
    spark: SparkSession,
    raw: Storage,
    ledger: Ledger,
    hours: dict[datetime, list[File]],
    run: str,
    progress: Progress,
) -> int:
    """Roll these hours up and enter them. Returns the rows read."""
    rows = 0
    todo = sorted(hours)
    for first in range(0, len(todo), HOURS_AT_ONCE):
        part = todo[first : first + HOURS_AT_ONCE]
        progress(first / len(todo), f"rolling up {len(todo)} hours, {first} done")
        rows += _roll_up_part(
            spark, raw, ledger, {hour: hours[hour] for hour in part}, f"{run}-{first}"
        )
    return rows


def _roll_up_part(
    spark: SparkSession, raw: Storage, ledger: Ledger, hours: dict[datetime, list[File]], run: str
) -> int:
    faults: Faults = {
        hour: dict.fromkeys(missing, MISSING)
        for hour in hours
        if (missing := record.missing_of(raw, hour))
    }
    with tables.thrown_away_if_it_fails(ledger.storage, ledger.folder_of(run)):
        for attempt in range(ATTEMPTS):
            try:
                counted = _write_tables(spark, raw, ledger, hours, run)
                break
            except Exception as failure:
                found = faults_in(spark, raw, hours)
                if not found or attempt == ATTEMPTS - 1:
                    raise
                log.warning("files of the record cannot be read", exc_info=failure)
                hours = {
                    hour: _without(
                        raw, hour, files, found.get(hour, {}), faults.setdefault(hour, {})
                    )
                    for hour, files in hours.items()
                }
    now = datetime.now(UTC).isoformat(timespec="seconds")
    entries = {
        hour: entry_of(
            ledger.entry(hour), files, counted.get(hour, 0), faults.get(hour, {}), run, now
        )
        for hour, files in hours.items()
    }
    ledger.enter(entries)
    for hour, damaged in faults.items():
        set_aside(raw, hour, damaged)
    return sum(counted.values())


def entry_of(
    before: Entry | None, files: list[File], rows: int, faults: dict[str, str], run: str, now: str
) -> Entry:
    """What the ledger says of an hour of which these files were counted.

    Rows are only added to an hour, but for damaged files that were set aside: fewer than before are
    the late ones of an hour whose others retention has deleted, and do not take the place of those.
    Nor do fewer than before on a restored node: then the roll-up has been restored, too, and has
    counted the files that are missing.

    Args:
        before: what it said until now.
        files: those that were counted.
        rows: how many rows they have.
        faults: files that are damaged or gone, and why.
        run: the run that counted.
        now: when, ISO.
    """
    known = {} if before is None else before.lost
    lost = {name: why for name, why in known.items() if why != MISSING} | faults
    for file in files:
        lost.pop(file.name, None)
    inputs = record.fingerprint(files)
    is_missing = MISSING in lost.values()
    damaged = {n: why for n, why in lost.items() if why not in (GONE, MISSING)}
    has_damage = any(why != LATE for why in damaged.values())
    if before is None or (files and (rows >= before.rows or has_damage)):
        return Entry(run, inputs, rows, now, lost)
    if not files:  # nothing is left to count: what was counted before stands
        return replace(before, lost=damaged)
    if is_missing:
        return replace(before, inputs=inputs)
    return replace(before, inputs=inputs, lost=damaged | {file.name: LATE for file in files})


def _without(
    raw: Storage,
    hour: datetime,
    files: list[File],
    found: dict[str, str],
    faults: dict[str, str],
) -> list[File]:
    """The files of an hour without those that are damaged, which are added to `faults`.

    Where some are gone and a compacted one is new, another run has put their rows there.
    """
    if GONE in found.values():
        there, known = record.files_of(raw, hour), {file.name for file in files}
        if any(compaction.is_compacted(file) and file.name not in known for file in there):
            found = {name: why for name, why in found.items() if why != GONE}
            files = there
    faults.update(found)
    return [file for file in files if file.name not in faults]


def _write_tables(
    spark: SparkSession, raw: Storage, ledger: Ledger, hours: dict[datetime, list[File]], run: str
) -> dict[datetime, int]:
    """The tables of the run. Returns how many rows each hour has."""
    if not any(hours.values()):
        return {}
    made = hourly.from_pieces(record.pieces(spark, hours), raw.root, run)
    rolled = ledger.storage
    run_parallel(
        [
            partial(tables.write, table, rolled, ledger.tables_of(run, name))
            for name, table in made.items()
        ]
    )
    parties = tables.read(spark, rolled, schema.PARTIES, [ledger.tables_of(run, "parties")])
    distinct = hourly.distinct(parties).coalesce(1)
    tables.write(distinct, rolled, ledger.tables_of(run, "distinct"))
    traffic = tables.read(spark, rolled, schema.TRAFFIC, [ledger.tables_of(run, "traffic")])
    sessions = tables.read(spark, rolled, schema.SESSIONS, [ledger.tables_of(run, "sessions")])
    rows = traffic.select("hour", f.col("messages").alias("rows")).union(
        sessions.select("hour", f.col("sessions").alias("rows"))
    )
    return {
        datetime.fromtimestamp(row["hour"], UTC): row["rows"]
        for row in rows.groupBy(f.unix_timestamp("hour").alias("hour"))
        .agg(f.sum("rows").alias("rows"))
        .collect()
    }


class Compacted(NamedTuple):
    """How many hours were compacted, and why no more were, if that failed."""

    hours: int
    fault: str = ""


def compact(
    spark: SparkSession, raw: Storage, ledger: Ledger, start: datetime, end: datetime, run: str
) -> Compacted:
    """Compact hours that are over and rolled up, and tell the ledger that their rows are the same.

    An hour to which rows came meanwhile stays stale, and so does one of which a file turns out to
    be damaged in columns that the roll-up does not read. What fails, as on a full disk, ends the
    compaction and not the run: its reports are made.
    """
    done = 0
    there = record.recorded_hours(raw, start, end)
    for hour, entry in ledger.entries(start, end).items():
        try:
            done += _settle_and_compact(spark, raw, ledger, hour, entry, there.get(hour, []), run)
        except Exception as failure:
            log.exception("hours of the record are not compacted", extra={"hour": str(hour)})
            return Compacted(done, f"{type(failure).__name__}: {failure}"[:_LONGEST_FAULT])
    return Compacted(done)


def _settle_and_compact(
    spark: SparkSession,
    raw: Storage,
    ledger: Ledger,
    hour: datetime,
    entry: Entry,
    listed: list[File],
    run: str,
) -> bool:
    files = record.files_of(raw, hour, listed)
    if compaction.is_unsettled(listed, files):
        compaction.settle(raw, hour)
        files = record.files_of(raw, hour)
    if len(files) < compaction.FILES_WORTH_IT or entry.rows > compaction.ROWS_PER_FILE:
        return False
    return _compact_hour(spark, raw, ledger, hour, entry, run)


def _compact_hour(
    spark: SparkSession, raw: Storage, ledger: Ledger, hour: datetime, entry: Entry, run: str
) -> bool:
    """Twice, if need be: another run may be at the same hour."""
    for is_last in (False, True):
        files = record.files_of(raw, hour)
        if not files or entry.inputs != record.fingerprint(files):
            return False
        try:
            compacted = compaction.compact(spark, raw, hour, files, run)
        except Exception as failure:
            faults: dict[str, str] = {}
            found = faults_in(spark, raw, {hour: files}).get(hour, {})
            _without(raw, hour, files, found, faults)
            if faults:
                log.warning("files of the record cannot be compacted", exc_info=failure)
                ledger.change(hour, entry.inputs, lost=entry.lost | faults)
                set_aside(raw, hour, faults)
                return False
            if is_last and not found:
                raise
            continue
        settled = record.files_of(raw, hour) if compacted else []
        if len(settled) == 1:
            ledger.change(hour, entry.inputs, inputs=record.fingerprint(settled))
        return compacted
    return False
