"""The rows of a record as anybody reads them, whatever columns its files have."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from msgnode.traffic.columns import OF_SESSIONS, STORED


def raw_rows(place: Path | str, system: fs.FileSystem | None = None) -> pa.Table:
    """All rows below a folder; columns that a file lacks are null."""
    system = system or fs.LocalFileSystem()
    every = system.get_file_info(fs.FileSelector(str(place), recursive=True, allow_not_found=True))
    files = [info.path for info in every if info.path.endswith(".parquet")]
    columns = pa.schema([*STORED, *OF_SESSIONS])
    tables = [pq.read_table(system.open_input_file(path)) for path in files]
    return pa.concat_tables([columns.empty_table(), *tables], promote_options="permissive")


def messages(table: pa.Table) -> pa.Table:
    """Those of messages."""
    return table.filter(pc.is_null(table["event"]))


def sessions(table: pa.Table) -> pa.Table:
    """Those of sessions, in the order of time."""
    return table.filter(pc.is_valid(table["event"])).sort_by("at")


def ids(table: pa.Table) -> list[int]:
    """The ids of messages, and 0 for each row of a session."""
    return sorted(int(id_ or 0) for id_ in table["id"].to_pylist())
