"""The columns of the record as they are stored, and how rows in memory become them.

Columns are few and as the pipeline knows them; schemes and domains are derived later, by Spark.
`spark.jobs.schema.RAW` is its twin (a test holds the two together).

This is paid for each row while the event loop waits for the interpreter, so little is done in
Python: what repeats from row to row (who speaks, what was decided) becomes one number for all of
it, looked up once for a row; other numbers become columns without a look at each.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import astuple

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

_REPEATED = (
    "session", "runtime", "type", "outcome", "component", "code", "effect", "rule", "asserted",
    "listeners",
)  # fmt: skip
_OWN = ("at", "id", "sender", "to", "size", "latency")
_KEY = "repeated"
_BATCH = pa.schema([*(_FROM_RECORD.field(name) for name in _OWN), pa.field(_KEY, pa.int32())])
_places = {field: place for place, field in enumerate(TrafficRecord.__struct_fields__)}
_repeated_of = itemgetter(*(_places[name] for name in _REPEATED))
_LATEST = 2**31 - 1


class Repeated(dict[tuple[Any, ...], int]):
    """Combinations of the values that repeat → their number, given at the first sight of each."""

    def __missing__(self, values: tuple[Any, ...]) -> int:
        for name, value in zip(_REPEATED, values, strict=True):
            pa.array([value], _FROM_RECORD.field(name).type)  # raises if it does not fit
        number = self[values] = len(self)
        return number

    def columns(self) -> dict[str, pa.Array]:
        """Each column's value by number."""
        by_column = list(zip(*self, strict=True)) or [()] * len(_REPEATED)
        return {
            name: pa.array(values, _FROM_RECORD.field(name).type)
            for name, values in zip(_REPEATED, by_column, strict=True)
        }


def batch_of(rows: Iterable[TrafficRecord], repeated: Repeated) -> pa.RecordBatch:
    """Rows as columns, those that repeat as one number. Raises if a value does not fit."""
    columns = list(zip(*map(astuple, rows), strict=True))
    if not columns:
        return pa.RecordBatch.from_pylist([], schema=_BATCH)
    length = len(columns[0])
    keys = array("i", map(repeated.__getitem__, zip(*_repeated_of(columns), strict=True)))
    arrays = [
        _numbers(array("d", columns[_places["at"]]), length),
        *(pa.array(columns[_places[name]], pa.string()) for name in ("id", "sender", "to")),
        _numbers(array("i", columns[_places["size"]]), length),
        _numbers(array("d", columns[_places["latency"]]), length),
        _numbers(keys, length),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_BATCH)


def _numbers(values: array[Any], length: int) -> pa.Array:
    kind = pa.float64() if values.typecode == "d" else pa.int32()
    return pa.Array.from_buffers(kind, length, [None, pa.py_buffer(values)])


def stored_table(
    batches: list[pa.RecordBatch], repeated: Repeated, node: str, worker: str
) -> pa.Table:
    """Batches as they are stored: times in microseconds, node and worker added."""
    table = pa.Table.from_batches(batches, schema=_BATCH)
    at = pc.cast(pc.round(pc.multiply(table["at"], 1e6)), pa.int64())
    latency = pc.round(pc.multiply(table["latency"], 1e6))
    bounded = pc.max_element_wise(0.0, pc.min_element_wise(latency, float(_LATEST)))
    keys = table[_KEY]
    columns = {name: table[name] for name in ("id", "sender", "to", "size")} | {
        name: values.take(keys) for name, values in repeated.columns().items()
    }
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
