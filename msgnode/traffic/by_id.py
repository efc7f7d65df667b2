"""Finds the recorded rows of messages with given ids, of the last hours. Arrow does the work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from spark.jobs.places import place

from .files import files_below, folder_of

MOST_READ = 20_000
"""Most rows read, the newest hour first; a common id may be in millions."""
TRIES = 3
"""Attempts to read an hour whose files are replaced meanwhile."""
_COLUMNS = ("at", "id", "type", "sender", "to", "outcome", "code")


class Row(NamedTuple):
    """One recipient of one message. `code` is that of the node's own answer, 0 without one."""

    at: datetime
    type: str
    sender: str
    to: str
    outcome: str
    code: int


def rows(
    url: str,
    ids: Collection[str],
    about: str,
    is_wanted: Callable[[str, str], bool],
    until: datetime,
    hours: int,
    most: int,
) -> list[Row]:
    """The newest rows of messages with one of these ids, oldest first.

    Args:
        url: the raw record.
        ids: the ids as written.
        about: a text that sender or recipient must contain.
        is_wanted: whether a pair of sender and recipient is of interest.
        until: the hour of this moment and those before.
        hours: how many hours.
        most: most rows.

    Raises:
        OSError: the record cannot be read.
    """
    asked = pc.field("id").isin(list(ids)) & (
        pc.match_substring(pc.field("sender"), about) | pc.match_substring(pc.field("to"), about)
    )
    try:
        found = [row for row in _read(url, asked, until, hours) if is_wanted(row.sender, row.to)]
    except pa.ArrowException as error:
        raise OSError(str(error)) from error
    return sorted(found)[-most:]


def _read(url: str, asked: Any, until: datetime, hours: int) -> Iterator[Row]:
    system, root = place(url)
    newest = until.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    left = MOST_READ
    for back in range(hours):
        folder = f"{root}/{folder_of(int((newest - timedelta(hours=back)).timestamp()))}"
        found = _read_hour(system, folder, asked, left)
        left -= len(found)
        yield from found


def _read_hour(system: Any, folder: str, asked: Any, most: int) -> list[Row]:
    """Read an hour, again if its files are replaced meanwhile, as a report does."""
    for again in reversed(range(TRIES)):
        try:
            return _rows_of_files(system, folder, asked, most)
        except FileNotFoundError:
            if not again:
                raise
    return []


def _rows_of_files(system: Any, folder: str, asked: Any, most: int) -> list[Row]:
    rows: list[Row] = []
    for file in files_below(system, folder):
        if not file.path.endswith(".parquet") or file.base_name.startswith("_"):
            continue
        if len(rows) >= most:
            break
        one = ds.dataset(file.path, filesystem=system, format="parquet")
        table = one.head(most - len(rows), columns=list(_COLUMNS), filter=asked)
        rows += map(_row, table.to_pylist())
    return rows


def _row(fields: dict[str, Any]) -> Row:
    at = fields["at"]
    return Row(
        at if isinstance(at, datetime) else datetime.fromtimestamp(at, UTC),
        fields["type"] or "", fields["sender"] or "", fields["to"] or "",
        fields["outcome"] or "", fields["code"] or 0,
    )  # fmt: skip
