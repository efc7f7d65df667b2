"""Compaction: the many small files of an hour become one.

There is no moment in which a row is missing or doubled (`record` says how).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from pyspark.sql import SparkSession

from spark.jobs import record, tables
from spark.jobs.storage import File, Storage

FILES_WORTH_IT = 8
ROWS_PER_FILE = 20_000_000
_BEGUN = ("_work-", "__compact-", "_compact-")


class RowsDiffer(RuntimeError):
    """The compacted file has not the rows of those it was made of; it was thrown away."""


def compact(
    spark: SparkSession, storage: Storage, hour: datetime, files: Sequence[File], run: str
) -> bool:
    """Make one of these files of an hour. Says whether there was something to do."""
    if len(files) < FILES_WORTH_IT:
        return False
    make = _put if storage.is_object_store else _write
    pending = make(spark, storage, hour, files, run)
    folder, _, name = pending.rpartition("/")
    decision = f"{folder}/{record.decision_of(name)}"
    storage.replace(decision, json.dumps([file.name for file in files]))
    settle(storage, hour)
    return True


def _put(
    spark: SparkSession, storage: Storage, hour: datetime, files: Sequence[File], run: str
) -> str:
    """One object of several, under its own name at once: nothing counts it before the decision."""
    to = f"{storage.at(record.folder_of(hour))}/compact-{run}"
    pending, before, after = tables.join_files(spark, files, to, ".pending")
    if before != after:
        storage.remove(pending)
        raise RowsDiffer(f"{hour:%Y-%m-%d %H}:00: {before} rows became {after}")
    return pending


def _write(
    spark: SparkSession,
    storage: Storage,
    hour: datetime,
    files: Sequence[File],
    run: str,
) -> str:
    """One file of several, its rows in the order of time, put in place by a rename."""
    folder = storage.at(record.folder_of(hour))
    workplace = f"{folder}/_work-{run}"
    raw = record.read(spark, storage, files).drop("date", "hour")
    raw.coalesce(1).sortWithinPartitions("at").write.mode("overwrite").option(
        "maxRecordsPerFile", ROWS_PER_FILE
    ).parquet(workplace)
    made = [file for file in storage.files(workplace) if file.name.endswith(".parquet")]
    before = raw.count()
    after = spark.read.parquet(*(file.path for file in made)).count()
    if before != after or len(made) != 1:
        storage.remove(workplace)
        raise RowsDiffer(
            f"{hour:%Y-%m-%d %H}:00: {before} rows became {after} in {len(made)} files"
        )
    pending = f"{folder}/compact-{run}.pending"
    storage.rename(made[0].path, pending)
    storage.remove(workplace)
    return pending


def is_unsettled(listed: Sequence[File]) -> bool:
    """Whether an hour's folder has something of a compaction that did not end."""
    return any(file.name.startswith(_BEGUN) or file.name.endswith(".pending") for file in listed)


def settle(storage: Storage, hour: datetime) -> None:
    """End what a killed compaction left: finish it from its json file on, drop it before."""
    folder = storage.at(record.folder_of(hour))
    names = {file.name for file in storage.files(folder)}
    for name in sorted(names):
        if name.startswith("_compact-") and name.endswith(".json"):
            for replaced in json.loads(storage.read(f"{folder}/{name}")):
                storage.remove(f"{folder}/{replaced}")
            pending = record.pending_of(name)
            if pending in names:
                settled = record.settled_of(pending)
                storage.rename(f"{folder}/{pending}", f"{folder}/{settled}")
                names.discard(pending)
            storage.remove(f"{folder}/{name}")
    for name in sorted(names):
        if name.startswith(_BEGUN) or name.endswith(".pending"):
            storage.remove(f"{folder}/{name}")
