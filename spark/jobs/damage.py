"""Damaged files of the record: confirmed by reading each by itself, named, and set aside.

A file is damaged if its content cannot be decoded, or lacks columns of the record, in two reads of
it alone: one in a Python worker of Spark, one here. A file system error, a missing permission or
too little memory proves nothing: it is raised, and the run is retried.

    date=2026-11-21/hour=13/<name>.parquet.damaged    set aside: kept as long as its hour, not read
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import SparkSession

from spark.jobs import record
from spark.jobs.counting import RECORD, batches_of
from spark.jobs.places import place
from spark.jobs.storage import File, Storage

log = logging.getLogger(__name__)

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
