"""The ledger of a tier of the roll-up: which run's rows count for an hour, a day or a month.

It also records their inputs:

    <roll-up>/ledger/2026-11-21.json      hours: {"13": {"run": …, "inputs": …, "rows": …, "at": …}}
    <roll-up>/days/2026-11.json           days:  {"21": …}
    <roll-up>/months/2026.json            months: {"11": …}
    <roll-up>/runs/<run>/<table>/*.parquet

A run writes its tables to a folder of its own and then enters its hours, days or months in the
ledger, a whole file in one rename: a run that was killed has changed nothing, a re-run replaces,
and nothing is counted twice. An hour whose raw files have changed since (late rows) is stale and
rolled up again, and so are its day and month; one whose raw files retention has deleted keeps its
entry.

An unreadable file is renamed <name>.json.damaged: its content is rolled up again from the remaining
rows, and damaged_files() reports it.

Two concurrent runs may each enter hours. If one enters something while the other writes the same
file, its entry is lost, and so stale: the next run rolls it up again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from spark.jobs import schema, tables
from spark.jobs.ledger_tiers import HOURS, Tier
from spark.jobs.storage import Storage

log = logging.getLogger(__name__)

DAMAGED = ".damaged"
ROWS_IN_ONE_PIECE = 20_000_000
"""Rows of the record, of which the roll-up has a hundredth or so."""
_LATER = ("sessions",)
"""Tables that runs of an earlier version did not make."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What counts for an hour, a day or a month. Without rows there need not be tables.

    run     which run counts            inputs  fingerprint of the raw files
    rows    how many                    at      when, ISO
    lost    files whose rows are missing, and why
    """

    run: str
    inputs: str
    rows: int
    at: str
    lost: dict[str, str] = field(default_factory=dict)


_FIELDS = frozenset(each.name for each in fields(Entry))
"""A later version may have written more."""


class Ledger:
    """The ledger of one tier; see the head of the file."""

    def __init__(self, storage: Storage, tier: Tier = HOURS) -> None:
        self.tier = tier
        self.storage = storage
        self._files: dict[str, dict[str, Entry]] = {}

    def entry(self, start: datetime) -> Entry | None:
        """The entry that begins at `start`, if there is one."""
        return self._file(f"{start:{self.tier.file}}").get(f"{start:{self.tier.key}}")

    def entries(self, start: datetime, end: datetime) -> dict[datetime, Entry]:
        """The entries that begin from `start` to before `end`, oldest first."""
        found = {}
        at = self.tier.floor(start)
        while at < end:
            if at >= start and (entry := self.entry(at)) is not None:
                found[at] = entry
            at = self.tier.after(at)
        return found

    def enter(self, entries: Mapping[datetime, Entry]) -> None:
        """Write entries, each by its beginning, in the place of those that were there."""
        for name in sorted({f"{start:{self.tier.file}}" for start in entries}):
            self._files.pop(name, None)  # another run may have entered something meanwhile
            known = self._file(name) | {
                f"{start:{self.tier.key}}": entry
                for start, entry in entries.items()
                if f"{start:{self.tier.file}}" == name
            }
            text = json.dumps({key: asdict(entry) for key, entry in sorted(known.items())})
            self.storage.replace(self._path(name), text)
            self._files[name] = known

    def change(self, start: datetime, counted: str, **values: Any) -> None:
        """Change the entry that begins at `start`, if it still is of what was counted.

        Another run may have entered something else meanwhile.

        Args:
            start: of the entry.
            counted: fingerprint of the raw files that it is of.
            values: by the names of its fields.
        """
        self._files.pop(f"{start:{self.tier.file}}", None)
        entry = self.entry(start)
        if entry is not None and entry.inputs == counted:
            self.enter({start: replace(entry, **values)})

    def damaged_files(self) -> list[str]:
        """The files of this ledger that could not be read, as they were called."""
        found = self.storage.files(self.storage.at(self.tier.folder))
        ends = f".json{DAMAGED}"
        return [
            f"{self.tier.folder}/{file.name.removesuffix(DAMAGED)}"
            for file in found
            if file.name.endswith(ends)
        ]

    def tables_of(self, run: str, table: str) -> str:
        """Where a run wrote this table."""
        return f"{self.folder_of(run)}/{table}"

    def folder_of(self, run: str) -> str:
        """Where a run wrote its tables."""
        return self.storage.at("runs", run)

    def _file(self, name: str) -> dict[str, Entry]:
        if name not in self._files:
            path = self._path(name)
            self._files[name] = self._read(path) if self.storage.exists(path) else {}
        return self._files[name]

    def _read(self, path: str) -> dict[str, Entry]:
        try:
            return {
                key: Entry(**{field: entry[field] for field in entry if field in _FIELDS})
                for key, entry in json.loads(self.storage.read(path)).items()
            }
        except (ValueError, TypeError, AttributeError):
            log.exception("a file of the ledger cannot be read: %s", path)
            self.storage.rename(path, path + DAMAGED)
            return {}

    def _path(self, name: str) -> str:
        return self.storage.at(self.tier.folder, f"{name}.json")


def read(
    spark: SparkSession, ledger: Ledger, table: str, entries: Mapping[datetime, Entry]
) -> DataFrame:
    """A table of the roll-up for these entries, without the column `run`.

    That of a record of usual size comes in one piece: whatever is made of it takes one task, and
    nothing is shuffled.
    """
    columns = schema.DAYS[table]
    entries = {start: entry for start, entry in entries.items() if entry.rows}
    if not entries:
        return _nothing(spark, columns)
    folders = [ledger.tables_of(run, table) for run in sorted({e.run for e in entries.values()})]
    if table in _LATER:
        folders = [folder for folder in folders if ledger.storage.exists(folder)]
        if not folders:
            return _nothing(spark, columns)
    rows = tables.read(spark, ledger.storage, columns, folders)
    if sum(entry.rows for entry in entries.values()) <= ROWS_IN_ONE_PIECE:
        rows = rows.coalesce(1)
    return rows.where(_counts(ledger.tier, entries)).drop("run")


def _nothing(spark: SparkSession, columns: StructType) -> DataFrame:
    none = [f.lit(None).cast(field.dataType).alias(field.name) for field in columns]
    return spark.range(0).select(*none).drop("run")


def _counts(tier: Tier, entries: Mapping[datetime, Entry]) -> Column:
    """Whether the entries name the run of a row for its hour or day.

    A condition, written out: a join would be one more job, and rows handed over from Python would
    have Spark start Python.
    """
    pairs = ", ".join(
        f"('{entry.run}', timestamp_seconds({int(start.timestamp())}))"
        for start, entry in entries.items()
    )
    return f.expr(f"(run, date_trunc('{tier.unit}', hour)) in ({pairs})")
