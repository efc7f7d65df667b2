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
_BEGUN = ("_work-", "__compact-")


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
    listed = storage.files(folder)
    names = {file.name for file in listed}
    decision = record.decision_of(name)
    replaced = {file.name for file in files}
    if not names.issuperset(replaced):
        # Another run has compacted them meanwhile, perhaps with others. Ours is of no use, unless
        # that run has decided on the same name and the file has not its last name yet.
        if decision not in names or record.settled_of(name) in names:
            storage.remove(f"{folder}/{name}")
        return False
    if name not in names:
        return False  # another run has thrown ours away
    for made, stood_for in record.decisions(storage, listed).items():
        if record.settled_of(made) in replaced:
            replaced |= stood_for  # this one stands for it from now on
        elif made != name and stood_for & replaced:
            return False  # another run decides at this moment
    storage.replace(f"{folder}/{decision}", json.dumps(sorted(replaced)))
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


def is_unsettled(listed: Sequence[File], files: Sequence[File]) -> bool:
    """Whether an hour's folder has something beside `files`, those that hold its rows.

    Of a compaction that did not end, or a file that was compacted and is there again.
    """
    counted = {file.name for file in files}
    return any(
        _is_of_a_compaction(file.name)
        or file.name.endswith(".pending")
        or (record.is_data(file.name) and file.name not in counted)
        for file in listed
    )


def settle(storage: Storage, hour: datetime) -> None:
    """End what a killed compaction left: finish it from its json file on, drop it before.

    The new file has its last name before any that it replaces is removed: whatever another run
    throws away at the same time, the rows stand in one of them. The json file stays with it.
    """
    folder = storage.at(record.folder_of(hour))
    listed = storage.files(folder)
    names = {file.name for file in listed}
    try:
        standing = record.decisions(storage, listed)
    except FileNotFoundError:
        return  # another run settles it
    for made, replaced in standing.items():
        if made.endswith(".pending"):
            _rename(storage, f"{folder}/{made}", f"{folder}/{record.settled_of(made)}")
            names.discard(made)
        if storage.exists(f"{folder}/{record.settled_of(made)}"):
            for each in sorted(replaced & names):
                storage.remove(f"{folder}/{each}")
            names -= replaced
    for name in sorted(names):
        if name.endswith(".pending") or _is_of_a_compaction(name):
            storage.remove(f"{folder}/{name}")
        elif record.is_decision(name) and record.settled_of(record.pending_of(name)) not in names:
            made = record.pending_of(name)
            if not any(storage.exists(f"{folder}/{n}") for n in (made, record.settled_of(made))):
                storage.remove(f"{folder}/{name}")


def _is_of_a_compaction(name: str) -> bool:
    return name.startswith(_BEGUN)


def _rename(storage: Storage, path: str, to: str) -> None:
    """Another run that settles the same may be faster, or may have thrown it away before."""
    try:
        storage.rename(path, to)
    except OSError:
        if storage.exists(path):
            raise
