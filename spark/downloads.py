"""A table of a report as CSV or Parquet."""

from __future__ import annotations

import csv
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

CSV, PARQUET = "csv", "parquet"
MEDIA_TYPES = {CSV: "text/csv; charset=utf-8", PARQUET: "application/vnd.apache.parquet"}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def content(rows: list[dict[str, Any]], form: str) -> bytes:
    return _csv(rows) if form == CSV else _parquet(rows)


def _csv(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\r\n")
    writer.writeheader()
    writer.writerows({name: _harmless(value) for name, value in row.items()} for row in rows)
    return text.getvalue().encode()


def _harmless(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula, so that it does not: senders choose it."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue()
