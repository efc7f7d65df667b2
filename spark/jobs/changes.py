"""The hours of the record whose files have changed, as a source of Spark's Structured Streaming.

    changed_hours ─► (hour in seconds since the epoch), once for each change

Spark's checkpoint has the position: for each hour of the last days, the fingerprint of its files.
It does not depend on the order in which files appear, on duplicates, or on the store's clock; a
restarted stream continues where it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

from spark.jobs import record
from spark.jobs.storage import Storage

NAME = "changed_hours"
AHEAD = timedelta(hours=1)
"""Of this machine's clock, that of a node may be."""
Seen = dict[str, str]


class ChangedHours(DataSource):
    """Options: `root` of the raw rows, `hours` to look back."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return NAME

    def schema(self) -> str:
        """One column."""
        return "hour long"

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: N802
        """Spark's name for what reads."""
        return _Reader(self.options["root"], timedelta(hours=int(self.options["hours"])))


class _Reader(SimpleDataSourceStreamReader):
    def __init__(self, root: str, back: timedelta) -> None:
        self._root = root
        self._back = back

    def initialOffset(self) -> Seen:  # noqa: N802
        return {}

    def read(self, start: Mapping[str, str]) -> tuple[Iterator[tuple[int]], Seen]:
        now = datetime.now(UTC)
        end = seen(Storage(self._root), now - self._back, now + AHEAD)
        return iter(changed(start, end)), end

    def readBetweenOffsets(  # noqa: N802
        self, start: Mapping[str, str], end: Mapping[str, str]
    ) -> Iterator[tuple[int]]:
        return iter(changed(start, end))


def seen(raw: Storage, start: datetime, end: datetime) -> Seen:
    """The fingerprint of the files of each hour, by its seconds since the epoch."""
    return {
        f"{hour.timestamp():.0f}": record.fingerprint(record.files_of(raw, hour, listed))
        for hour, listed in record.recorded_hours(raw, start, end).items()
    }


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[tuple[int]]:
    """Hours that have other files than before, oldest first."""
    return [
        (int(hour),)
        for hour, files in sorted(after.items(), key=lambda item: int(item[0]))
        if before.get(hour) != files
    ]
