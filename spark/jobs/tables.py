"""Tables of the roll-up as Parquet files, written and read by Spark, or by pyarrow in its tasks.

Spark's own reader and writer use Hadoop, which needs a client of its own for object stores, and
commits by renames. On an object store each attempt of a task writes an object under a name of its
own, and `_files.json` lists those that count: of the attempts that succeeded. An attempt given up
for lost that still writes changes nothing. Reading distributes the objects to tasks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark.jobs.counting import completed
from spark.jobs.places import place
from spark.jobs.storage import File, Storage

FILES = "_files.json"
_TASKS_PER_CORE = 2
Batches = Iterator[pa.RecordBatch]


def write(frame: DataFrame, storage: Storage, folder: str) -> None:
    """Write a table to a folder, in the place of what stood there."""
    if not storage.is_object_store:
        frame.write.mode("overwrite").parquet(folder)
        storage.sync(folder)
        return
    written = frame.mapInArrow(_writer(folder), "written string").collect()
    storage.replace(f"{folder}/{FILES}", json.dumps(sorted(row["written"] for row in written)))


@contextmanager
def thrown_away_if_it_fails(storage: Storage, folder: str) -> Iterator[None]:
    """What is written in the body to this folder counts for nothing if the body raises.

    It would stay for a day, which a disk that is full has no room for.
    """
    try:
        yield
    except Exception:
        with suppress(Exception):  # such as a store that is away
            storage.remove(folder)
        raise


def read(
    spark: SparkSession, storage: Storage, schema: StructType, folders: Sequence[str]
) -> DataFrame:
    """The rows of the folders; columns that a file lacks are null."""
    if not storage.is_object_store:
        return spark.read.schema(schema).parquet(*folders)
    found = [
        f"{folder}/{name}"
        for folder in folders
        for name in json.loads(storage.read(f"{folder}/{FILES}"))
    ]
    if not found:
        return spark.createDataFrame([], schema)
    tasks = min(len(found), _TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    listed = spark.createDataFrame([(path,) for path in found], "path string").repartition(tasks)
    return listed.mapInArrow(_reader(to_arrow_schema(schema, timezone="UTC")), schema)


def join_files(spark: SparkSession, files: Sequence[File], to: str) -> tuple[str, int, int]:
    """Make one Parquet file of several, in one task.

    Returns:
        Its path, which begins with `to`, and the rows before and after.
    """
    listed = spark.createDataFrame([([file.path for file in files],)], "paths array<string>")
    joined = listed.coalesce(1).mapInArrow(_joiner(to), "path string, before long, after long")
    (row,) = joined.collect()
    return row["path"], row["before"], row["after"]


def _attempt() -> str:
    """Of the task this is: its number, and one that no other attempt has."""
    context = TaskContext.get()
    return "0-0" if context is None else f"{context.partitionId()}-{context.taskAttemptId()}"


def _writer(folder: str) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        name = f"part-{_attempt()}.parquet"
        system, path = place(f"{folder}/{name}")
        writer = None
        for batch in batches:
            if writer is None:
                writer = pq.ParquetWriter(path, batch.schema, filesystem=system, compression="zstd")
            writer.write_batch(batch)
        if writer is not None:
            writer.close()
            yield pa.RecordBatch.from_pydict({"written": [name]})

    return run


def _reader(schema: pa.Schema) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        for path in (path for batch in batches for path in batch["path"].to_pylist()):
            system, at = place(path)
            with system.open_input_file(at) as source:
                for rows in pq.ParquetFile(source).iter_batches(use_threads=False):
                    yield completed(rows, schema)

    return run


def _joiner(to: str) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        made = f"{to}-{_attempt()}"  # what fails half-way is an object, too
        system, target = place(made)
        for paths in (paths for batch in batches for paths in batch["paths"].to_pylist()):
            before = 0
            sources = [place(path) for path in paths]
            schema = pa.unify_schemas([pq.read_schema(at, filesystem=of) for of, at in sources])
            with pq.ParquetWriter(target, schema, filesystem=system, compression="zstd") as writer:
                for source, at in sources:
                    with source.open_input_file(at) as opened:
                        file = pq.ParquetFile(opened)
                        before += file.metadata.num_rows
                        for rows in file.iter_batches(use_threads=False):
                            writer.write_batch(completed(rows, schema))
            after = pq.read_metadata(target, filesystem=system).num_rows
            yield pa.RecordBatch.from_pydict({"path": [made], "before": [before], "after": [after]})

    return run
