"""The columns of the record as they are stored, and how rows become them.

Columns are few and as the pipeline knows them; schemes and domains are derived later, by Spark.
`spark.jobs.schema.RAW` is its twin (a test holds the two together).

The event loop pays for each row, so a row becomes columns where it is noted, in what the processor
has at hand, and nothing of it is kept: what repeats from row to row (who speaks, what was decided,
addresses) is one number, looked up once; all numbers of a row are packed at once. Texts are stored
from these numbers too: nothing is written out for each row, neither in memory nor for Parquet to
search for what repeats. A flush is Arrow's work, which leaves the interpreter to the event loop.
"""

from __future__ import annotations

from functools import partial
from io import StringIO
from itertools import pairwise
from struct import Struct
from struct import error as StructError
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
    "session", "runtime", "sender", "type", "outcome", "component", "code", "effect", "rule",
    "asserted", "listeners",
)  # fmt: skip
_FITS = tuple(
    str.encode
    if (kind := _FROM_RECORD.field(name).type) == pa.string()
    else Struct("i").pack
    if kind == pa.int32()
    else partial(pa.scalar, type=kind)
    for name in _REPEATED
)
"""For each of these, what raises if a value does not fit."""

_ROW = Struct("=ddiiii")  # at, latency; number of what repeats, number of `to`, size, length of id
_LATEST = 2**31 - 1
DOES_NOT_FIT = (pa.ArrowException, StructError, ValueError, TypeError, OverflowError)


class _Repeated(dict[tuple[Any, ...], int]):
    """Combinations of the values that repeat → their number, given at the first sight of each."""

    def __missing__(self, values: tuple[Any, ...]) -> int:
        for fits, value in zip(_FITS, values, strict=True):
            fits(value)
        number = self[values] = len(self)
        return number


class _Addresses(dict[str, int]):
    """Addresses → their number, given at the first sight of each."""

    def __missing__(self, address: str) -> int:
        str.encode(address)  # raises if it does not fit
        number = self[address] = len(self)
        return number


class Columns:
    """Rows as columns, to which one thread adds; 50 bytes each, and what does not repeat."""

    __slots__ = ("_ids", "_numbers", "_repeated", "_to")

    def __init__(self) -> None:
        self._numbers = bytearray()
        self._ids = StringIO()
        self._repeated = _Repeated()
        self._to = _Addresses()

    def __len__(self) -> int:
        return len(self._numbers) // _ROW.size

    def add(self, record: TrafficRecord) -> None:
        """One more row. Raises one of DOES_NOT_FIT if a value does not fit; then nothing is added."""
        (
            at, session, id_, type_, sender, to, size, listeners, outcome, component, code,
            effect, rule, asserted, latency, runtime,
        ) = astuple(record)  # fmt: skip
        repeated = self._repeated[
            session, runtime, sender, type_, outcome, component, code, effect, rule,
            asserted, listeners,
        ]  # fmt: skip
        numbers = _ROW.pack(at, latency, repeated, self._to[to], size, len(id_))
        self._ids.write(id_)
        self._numbers += numbers

    def table(self, node: str, worker: str) -> pa.Table:
        """The rows as they are stored; texts are dictionaries, but for the id."""
        length = len(self)
        numbers = memoryview(self._numbers)
        at, latency = (_column(pa.float64(), numbers.cast("d")[place::4]) for place in (0, 1))
        repeated, to, size, id_lengths = (
            _column(pa.int32(), numbers.cast("i")[place::8]) for place in (4, 5, 6, 7)
        )
        same = pa.repeat(pa.scalar(0, pa.int32()), length)
        micros = pc.min_element_wise(_micros(latency), float(_LATEST))
        columns = {
            "at": pc.cast(pc.cast(_micros(at), pa.int64()), STORED.field("at").type),
            "node": pa.DictionaryArray.from_arrays(same, [node]),
            "worker": pa.DictionaryArray.from_arrays(same, [worker]),
            "id": _texts(self._ids.getvalue(), id_lengths),
            "to": pa.DictionaryArray.from_arrays(to, pa.array(list(self._to), pa.string())),
            "size": size,
            "latency_us": pc.cast(pc.max_element_wise(0.0, micros), pa.int32()),
        }
        for name, values in zip(_REPEATED, zip(*self._repeated, strict=True), strict=True):
            distinct = pa.array(values, _FROM_RECORD.field(name).type)
            columns[name] = _spread(distinct, repeated)
        return pa.table({name: columns[name] for name in STORED.names})


def _column(kind: pa.DataType, numbers: memoryview[Any]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers.tobytes())])


def _micros(seconds: pa.Array) -> pa.Array:
    return pc.round(pc.multiply(seconds, 1e6))


def _texts(joined: str, lengths: pa.Array) -> pa.Array:
    """Texts that follow one another, by their lengths."""
    ends = pc.cumulative_sum(pa.concat_arrays([pa.array([0], pa.int32()), lengths]))
    if not joined.isascii():
        places = ends.to_pylist()
        return pa.array([joined[begin:end] for begin, end in pairwise(places)], pa.string())
    text = pa.py_buffer(joined.encode())
    return pa.Array.from_buffers(pa.string(), len(lengths), [None, ends.buffers()[1], text])


def _spread(values: pa.Array, numbers: pa.Array) -> pa.Array:
    """The values at these numbers; texts as a dictionary in which each stands once."""
    if values.type != pa.string():
        return values.take(numbers)
    distinct = values.dictionary_encode()
    indices = distinct.indices.take(numbers)
    return pa.DictionaryArray.from_arrays(indices, distinct.dictionary)


def hours_of(table: pa.Table) -> dict[int, pa.Table]:
    """The table by hour: seconds since the epoch at which the hour begins → its rows."""
    hours = pc.divide(pc.cast(table["at"], pa.int64()), 3_600_000_000)
    distinct = pc.unique(hours).to_pylist()
    if len(distinct) == 1:
        return {distinct[0] * 3600: table}
    return {hour * 3600: table.filter(pc.equal(hours, hour)) for hour in sorted(distinct)}
