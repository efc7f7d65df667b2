"""Renders a table of a report as CSV or Parquet."""

from __future__ import annotations

import csv
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

CSV, PARQUET = "csv", "parquet"
MEDIA_TYPES = {CSV: "text/csv; charset=utf-8", PARQUET: "application/vnd.apache.parquet"}
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001 (as wide as Chinese)


def content(rows: list[dict[str, Any]], form: str, there_were: int = 0) -> bytes:
    """The rows as a file. Parquet says in its metadata how many there were to choose from."""
    return _csv(rows) if form == CSV else _parquet(rows, max(there_were, len(rows)))


def name_of(report: str, table: str, kept: int, there_were: int, form: str) -> str:
    """The file's name: `daily-…-talkers-top-100-of-4211.csv` where not all rows were kept."""
    cut = f"-top-{kept}-of-{there_were}" if there_were > kept else ""
    return f"{report}-{table}{cut}.{form}"


def _csv(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(
        text,
        fieldnames=list(rows[0]) if rows else [],
        lineterminator="\r\n",
        quoting=csv.QUOTE_NONNUMERIC,  # where a semicolon ends a cell, none of a text does
    )
    writer.writeheader()
    writer.writerows({name: _harmless(value) for name, value in row.items()} for row in rows)
    return text.getvalue().encode()


def _harmless(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula, so that it does not: senders choose it."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _parquet(rows: list[dict[str, Any]], there_were: int) -> bytes:
    sink = io.BytesIO()
    table = pa.Table.from_pylist(rows)
    pq.write_table(table.replace_schema_metadata({"rows_there_were": str(there_were)}), sink)
    return sink.getvalue()
