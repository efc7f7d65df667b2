"""Where raw rows are, and which files belong to an hour.

    <record>/date=2026-11-21/hour=13/<name>.parquet       rows of that hour, each file complete
                                    /compact-<x>.pending   made of other files
                                    /_compact-<x>.json     from now on it replaces those it names
                                    /compact-<x>.parquet   its final name
                                    /<name>.damaged        unreadable (`damage`), no data
                                    /_missing.json         files that were not restored (backup)

Compaction replaces files by one, and a concurrent reader sees each row once: creating the json
file, the decision, is the moment of change. A process killed before it leaves garbage; one killed
after it leaves work that `files_of` already treats as done and the next compaction completes.

The decision is kept as long as the file: a file it names is not read, even if it appears again. An
object store that was out of reach may carry out a write hours later, or be asked to repeat it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spark.jobs import schema
from spark.jobs.storage import MISSING_LIST, File, Storage

log = logging.getLogger(__name__)

_DAY = re.compile(r"date=(\d{4}-\d\d-\d\d)")
_HOUR = re.compile(r"hour=([01]\d|2[0-3])")
_LISTED_AGAIN = 3
PIECE_BYTES = 64 * 1024**2
TASKS_PER_CORE = 4


def folder_of(hour: datetime) -> str:
    """Where the files of an hour are, below the record's root."""
    return f"date={hour:%Y-%m-%d}/hour={hour.hour:02d}"


def recorded_hours(storage: Storage, start: datetime, end: datetime) -> dict[datetime, list[File]]:
    """Hours from `start` to before `end` that have a folder, oldest first, and what is in it.

    All of a day is listed at once. Folders of other names are somebody else's.
    """
    hours: dict[datetime, list[File]] = {}
    for day in storage.files(storage.root):
        on = _day_of(day.name)
        if on is None or not start.date() <= on <= end.date():
            continue
        for found in storage.files(day.path, all_below=True):
            folder, *within = found.path.removeprefix(f"{day.path}/").split("/")
            if _HOUR.fullmatch(folder):
                hour = datetime(on.year, on.month, on.day, int(folder[5:]), tzinfo=UTC)
                if start <= hour < end:
                    hours.setdefault(hour, []).extend([found] if len(within) == 1 else [])
    return dict(sorted(hours.items()))


def _day_of(folder: str) -> date | None:
    named = _DAY.fullmatch(folder)
    try:
        return date.fromisoformat(named[1]) if named else None
    except ValueError:  # such as the 30th of February
        return None


def files_of(storage: Storage, hour: datetime, listed: Sequence[File] | None = None) -> list[File]:
    """The files that hold the hour's rows, each row once.

    `listed` is what stands in its folder, if that is known.
    """
    folder = storage.at(folder_of(hour))
    for _ in range(_LISTED_AGAIN):
        try:
            return _counted(storage, storage.files(folder) if listed is None else listed)
        except FileNotFoundError:  # another run has put its decision in the place of this one
            listed = None
    return _counted(storage, storage.files(folder))


def _counted(storage: Storage, listed: Sequence[File]) -> list[File]:
    found = {file.name: file for file in listed}
    data = {name: file for name, file in found.items() if is_data(name)}
    for made, replaced in decisions(storage, listed).items():
        for name in replaced:
            data.pop(name, None)
        if made.endswith(".pending"):  # an object store may have it under its last name already
            data.pop(settled_of(made), None)
            data[made] = found[made]
    return [data[name] for name in sorted(data)]


def missing_of(storage: Storage, hour: datetime, listed: Sequence[File] | None = None) -> list[str]:
    """The files of an hour that a restored node lacks, and no compacted one stands for.

    `listed` is what stands in its folder, if that is known.
    """
    there = storage.files(storage.at(folder_of(hour))) if listed is None else listed
    found = {file.name: file for file in there}
    if MISSING_LIST not in found:
        return []
    known = set(found)
    for name in filter(is_decision, found):
        known.update(_named_in(storage, found[name]))
    return sorted(_named_in(storage, found[MISSING_LIST]) - known)


def _named_in(storage: Storage, file: File) -> set[str]:
    """The names in a list of files; none if it cannot be read."""
    try:
        named = json.loads(storage.read(file.path))
        return {each for each in named if isinstance(each, str) and is_data(each)}
    except (OSError, ValueError, TypeError):
        log.warning("a list of files cannot be read", extra={"file": file.path})
        return set()


def decisions(storage: Storage, listed: Sequence[File]) -> dict[str, set[str]]:
    """Compacted file → the files that it stands for, and which count no more.

    Of two that two runs made of the same file at the same moment, the one made of more counts, for
    everybody; the other is among what it stands for. Raises FileNotFoundError.
    """
    found = {file.name: file for file in listed}
    decided = {name: file for name, file in found.items() if is_decision(name)}
    made_alone = {settled_of(pending_of(name)) for name in decided}
    if len(decided) == 1 and made_alone == set(filter(_has_rows, found)):
        return {}  # the usual hour: there is nothing beside, so nothing to read
    stands: dict[str, set[str]] = {}
    for name, file in decided.items():
        pending = pending_of(name)
        made = pending if pending in found else settled_of(pending)
        if made not in found:  # set aside or thrown away, and what it was made of is there
            continue
        try:
            stands[made] = set(json.loads(storage.read(file.path)))
        except (ValueError, TypeError):
            log.warning("a decision of a compaction cannot be read", extra={"file": file.path})
            if made != pending:  # it is complete; else what it was made of is there
                stands[made] = set()
    counting: dict[str, set[str]] = {}
    for made in sorted(stands, key=lambda each: (-len(stands[each]), each)):
        for larger in counting.values():
            if larger & stands[made]:
                larger |= {made, settled_of(made)}
                break
        else:
            counting[made] = stands[made]
    return counting


def fingerprint(files: Sequence[File]) -> str:
    """Changes when a file comes or goes."""
    text = "\n".join(f"{file.name.partition('.')[0]} {file.size}" for file in files)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def pieces(
    spark: SparkSession, hours: Mapping[datetime, Sequence[File]], piece_bytes: int = PIECE_BYTES
) -> DataFrame:
    """(hour in seconds since the epoch, folder, names): what can be counted apart.

    An hour's small files stay together up to `piece_bytes`, so that its parties are met once; tasks
    take pieces as they get free. Raises ValueError if there is no file.
    """
    found: list[tuple[int, str, list[str]]] = []
    for hour, files in hours.items():
        size = piece_bytes
        for file in files:
            if size >= piece_bytes:
                found.append((int(hour.timestamp()), folder_of(hour), []))
                size = 0
            found[-1][2].append(file.name)
            size += file.size
    tasks = min(len(found), TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    columns = {"hour": pa.int64(), "folder": pa.string(), "names": pa.list_(pa.string())}
    arrays = [
        pa.array(values, kind)
        for values, kind in zip(zip(*found, strict=True), columns.values(), strict=True)
    ]
    listed = pa.table(arrays, schema=pa.schema(columns))
    return spark.createDataFrame(listed).repartition(max(1, tasks))


def read(spark: SparkSession, storage: Storage, files: Sequence[File]) -> DataFrame:
    """Rows of exactly these files with their `date` and `hour`. Columns a file lacks are null."""
    columns = StructType([*schema.RAW.fields, *schema.PARTITION.fields])
    return (
        spark.read.schema(columns)
        .option("basePath", storage.root)
        .parquet(*(file.path for file in files))
    )


def pending_of(name: str) -> str:
    """The file that the json file of this name speaks for."""
    return name.removeprefix("_").removesuffix(".json") + ".pending"


def settled_of(name: str) -> str:
    """The last name of the compacted file of this name."""
    return name.removesuffix(".pending").removesuffix(".parquet") + ".parquet"


def decision_of(pending: str) -> str:
    """The json file that speaks for the file of this name."""
    return f"_{pending.removesuffix('.pending')}.json"


def is_decision(name: str) -> bool:
    """Whether a file of this name says what a compacted file stands for."""
    return name.startswith("_compact-") and name.endswith(".json")


def is_data(name: str) -> bool:
    """Whether a file of this name has rows."""
    return name.endswith(".parquet") and not name.startswith(("_", "."))


def _has_rows(name: str) -> bool:
    return is_data(name) or name.endswith(".pending")
