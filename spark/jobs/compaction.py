"""Compaction: merges the many small files of an hour into one.

At no moment is a row missing or doubled (`record` tells how). The result for the same files has the
same name: two concurrent runs write the same rows to the same place.
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
    name = f"compact-{record.fingerprint(files)}.pending"
    folder = storage.at(record.folder_of(hour))
    make = _put if storage.is_object_store else _write
    workplace = f"_work-{run}"
    try:
        make(spark, storage, files, f"{folder}/{name}", f"{folder}/{workplace}")
    except Exception:
        for left in storage.files(folder):  # such as the half of an object
            if left.name == workplace or left.name.startswith(f"{workplace}-"):
                storage.remove(left.path)
        raise
    listed = {file.name for file in storage.files(folder)}
    decision = record.decision_of(name)
    if not listed.issuperset(file.name for file in files):
        # Another run has compacted them meanwhile, perhaps with others. Ours is of no use, unless
        # that run has decided on the same name and the file has not its last name yet.
        if decision not in listed or record.settled_of(name) in listed:
            storage.remove(f"{folder}/{name}")
        return False
    if name not in listed or any(map(_is_decision, listed - {decision})):
        return False  # another run has thrown ours away, or decides at this moment
    storage.replace(f"{folder}/{decision}", json.dumps([file.name for file in files]))
    settle(storage, hour)
    return True


def _put(
    spark: SparkSession, storage: Storage, files: Sequence[File], pending: str, workplace: str
) -> None:
    """One object of several, put in place whole, once its rows have been counted."""
    made, before, after = tables.join_files(spark, files, workplace)
    if before != after:
        storage.remove(made)
        raise RowsDiffer(f"{pending}: {before} rows became {after}")
    storage.rename(made, pending)


def _write(
    spark: SparkSession, storage: Storage, files: Sequence[File], pending: str, workplace: str
) -> None:
    """One file of several, its rows in the order of time, put in place by a rename."""
    raw = record.read(spark, storage, files).drop("date", "hour")
    raw.coalesce(1).sortWithinPartitions("at").write.mode("overwrite").option(
        "maxRecordsPerFile", ROWS_PER_FILE
    ).parquet(workplace)
    made = [file for file in storage.files(workplace) if file.name.endswith(".parquet")]
    before = raw.count()
    after = spark.read.parquet(*(file.path for file in made)).count()
    if before != after or len(made) != 1:
        storage.remove(workplace)
        raise RowsDiffer(f"{pending}: {before} rows became {after} in {len(made)} files")
    storage.sync(made[0].path)
    storage.rename(made[0].path, pending)
    storage.remove(workplace)


def is_compacted(file: File) -> bool:
    """Whether a file of the record was made of others."""
    return file.name.startswith("compact-")


def is_unsettled(listed: Sequence[File]) -> bool:
    """Whether an hour's folder has something of a compaction that did not end."""
    return any(file.name.startswith(_BEGUN) or file.name.endswith(".pending") for file in listed)


def settle(storage: Storage, hour: datetime) -> None:
    """End what a killed compaction left: finish it from its json file on, drop it before.

    The new file has its last name before any that it replaces is removed: whatever another run
    throws away at the same time, the rows stand in one of them.
    """
    folder = storage.at(record.folder_of(hour))
    names = {file.name for file in storage.files(folder)}
    for name in sorted(filter(_is_decision, names)):
        pending = record.pending_of(name)
        if pending in names:
            names.discard(pending)
            _rename(storage, f"{folder}/{pending}", f"{folder}/{record.settled_of(pending)}")
        try:
            replaced = json.loads(storage.read(f"{folder}/{name}"))
        except FileNotFoundError:
            continue  # another run has settled it
        if storage.exists(f"{folder}/{record.settled_of(pending)}"):
            for each in replaced:
                storage.remove(f"{folder}/{each}")
        storage.remove(f"{folder}/{name}")
    for name in sorted(names):
        if name.endswith(".pending") or (name.startswith(_BEGUN) and not _is_decision(name)):
            storage.remove(f"{folder}/{name}")


def _is_decision(name: str) -> bool:
    return name.startswith("_compact-") and name.endswith(".json")


def _rename(storage: Storage, path: str, to: str) -> None:
    """Another run that settles the same may be faster, or may have thrown it away before."""
    try:
        storage.rename(path, to)
    except OSError:
        if storage.exists(path):
            raise
