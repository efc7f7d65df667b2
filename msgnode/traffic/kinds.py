"""Counts the kinds of messages in the record of the last hours, for a replay.

Files are read one after another, the newest hour first, until so many rows are read; equal messages
of an hour are one kind. Arrow does the work, without the GIL.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from spark.jobs.places import place

from .files import files_below, folder_of

COLUMNS = ("type", "sender", "to", "runtime")
MOST_ROWS = 2_000_000
MOST_KINDS = 200_000
"""Kinds that are held at a time; beyond, new ones are not counted."""


class Kind(NamedTuple):
    """Messages that are equal but for their bodies: `hour` is the hour's beginning."""

    hour: datetime
    type: str
    sender: str
    to: str
    runtime: str


class Kinds(NamedTuple):
    """The most frequent kinds with their numbers.

    rows        messages of the record in that time that were read
    is_whole    no file was left out
    """

    most: list[tuple[Kind, int]]
    rows: int
    is_whole: bool


def kinds(url: str, until: datetime, hours: int, most: int) -> Kinds:
    """The `most` frequent kinds of the hour of `until` and those before, `hours` in all.

    Raises:
        OSError: the record cannot be read.
    """
    system, root = place(url)
    found: Counter[Kind] = Counter()
    rows, is_whole = 0, True
    newest = until.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    for back in range(hours):
        hour = newest - timedelta(hours=back)
        folder = f"{root}/{folder_of(int(hour.timestamp()))}"
        for file in files_below(system, folder):
            if not file.path.endswith(".parquet") or file.base_name.startswith("_"):
                continue
            if rows >= MOST_ROWS:
                is_whole = False
                break
            table = pq.read_table(file.path, columns=list(COLUMNS), filesystem=system)
            rows += table.num_rows
            _count(table, hour, found)
    return Kinds(found.most_common(most), rows, is_whole)


def _count(table: pa.Table, hour: datetime, found: Counter[Kind]) -> None:
    plain = table.cast(pa.schema([(name, pa.string()) for name in COLUMNS]))
    counted = plain.group_by(list(COLUMNS)).aggregate([([], "count_all")])
    columns = [counted.column(name).to_pylist() for name in (*COLUMNS, "count_all")]
    for type_, sender, to, runtime, count in zip(*columns, strict=True):
        kind = Kind(hour, type_ or "", sender or "", to or "", runtime or "")
        if kind in found or len(found) < MOST_KINDS:
            found[kind] += count
