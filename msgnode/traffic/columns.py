"""The columns of the record as they are stored, and how rows in memory become them.

Columns are few and as the pipeline knows them; schemes and domains are derived later, by Spark.
`spark.jobs.schema.RAW` is its twin (a test holds the two together).
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

import pyarrow as pa
import pyarrow.compute as pc

from msgnode.core.record import TrafficRecord

_FROM_RECORD = pa.schema(
    [
        pa.field("at", pa.float64()),
        pa.field("session", pa.string()),
        pa.field("runtime", pa.string()),
        pa.field("id", pa.string()),
        pa.field("type", pa.string()),
        pa.field("sender", pa.string()),
        pa.field("to", pa.string()),
        pa.field("size", pa.int32()),
        pa.field("listeners", pa.int32()),
        pa.field("outcome", pa.string()),
        pa.field("component", pa.string()),
        pa.field("code", pa.int32()),
        pa.field("effect", pa.string()),
        pa.field("rule", pa.string()),
        pa.field("asserted", pa.bool_()),
        pa.field("latency", pa.float64()),
    ]
)
STORED = pa.schema(
    [
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("node", pa.string()),
        pa.field("worker", pa.string()),
        *(_FROM_RECORD.field(name) for name in _FROM_RECORD.names if name not in ("at", "latency")),
        pa.field("latency_us", pa.int32()),
    ]
)
NAMES = ("session", "runtime", "sender", "to")
"""Columns that say who: made pseudonyms if the operator wants that."""

_values = attrgetter(*_FROM_RECORD.names)
_NO_ROW = pa.RecordBatch.from_pylist([], schema=_FROM_RECORD)
_LATEST = 2**31 - 1


def batch_of(rows: Iterable[TrafficRecord]) -> pa.RecordBatch:
    """Rows as columns. Raises if a value does not fit its column."""
    columns = list(zip(*map(_values, rows), strict=True))
    if not columns:
        return _NO_ROW
    arrays = [
        pa.array(column, type=field.type)
        for column, field in zip(columns, _FROM_RECORD, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_FROM_RECORD)


def stored_table(batches: list[pa.RecordBatch], node: str, worker: str) -> pa.Table:
    """Batches as they are stored: times in microseconds, node and worker added."""
    table = pa.Table.from_batches(batches, schema=_FROM_RECORD)
    at = pc.cast(pc.round(pc.multiply(table["at"], 1e6)), pa.int64())
    latency = pc.round(pc.multiply(table["latency"], 1e6))
    bounded = pc.max_element_wise(0.0, pc.min_element_wise(latency, float(_LATEST)))
    columns = {name: table[name] for name in table.column_names}
    columns["at"] = pc.cast(at, STORED.field("at").type)
    columns["latency_us"] = pc.cast(bounded, pa.int32())
    columns["node"] = _same(node, len(table))
    columns["worker"] = _same(worker, len(table))
    return pa.table([columns[name] for name in STORED.names], schema=STORED)


def hours_of(table: pa.Table) -> dict[int, pa.Table]:
    """The table by hour: seconds since the epoch at which the hour begins → its rows."""
    hours = pc.divide(pc.cast(table["at"], pa.int64()), 3_600_000_000)
    distinct = pc.unique(hours).to_pylist()
    if len(distinct) == 1:
        return {distinct[0] * 3600: table}
    return {hour * 3600: table.filter(pc.equal(hours, hour)) for hour in sorted(distinct)}


def _same(text: str, length: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), length)
