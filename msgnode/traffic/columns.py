"""The columns of the record as they are stored, and how rows are converted to them.

Columns are few and as the pipeline knows them; Spark derives schemes and domains later.
`spark.jobs.schema.RAW` is the same schema (a test compares the two).

A row_buffer.RowBuffer holds the rows until a flush, which is done by Arrow: that leaves the GIL to
the event loop. Tokens are cut out of addresses when first seen, and out of ids at the flush.

Arrow is given buffers, never Python values: for one of these it would load pandas (45 MB, half a
second).
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from msgnode.core.record import SessionRecord
from msgnode.core.redaction import PLAIN, cut, cut_id

from .row_buffer import REPEATED, Columns


def _of(type_: pa.DataType, names: str) -> list[pa.Field]:
    return [pa.field(name, type_) for name in names.split()]


_FROM_RECORD = pa.schema(
    [
        *_of(pa.float64(), "at"),
        *_of(pa.string(), "session runtime id type sender to"),
        *_of(pa.int32(), "size listeners"),
        *_of(pa.string(), "outcome component"),
        *_of(pa.int32(), "code"),
        *_of(pa.string(), "effect rule"),
        *_of(pa.bool_(), "asserted"),
        *_of(pa.float64(), "latency"),
    ]
)
STORED = pa.schema(
    [
        *_of(pa.timestamp("us", tz="UTC"), "at"),
        *_of(pa.string(), "node worker"),
        *(_FROM_RECORD.field(name) for name in _FROM_RECORD.names if name not in ("at", "latency")),
        *_of(pa.int32(), "latency_us"),
    ]
)
OF_SESSIONS = pa.schema([*_of(pa.string(), "event"), *_of(pa.int32(), "lasted_s resumptions")])
"""Columns that only rows of sessions have. In such a row `sender` is the runtime, `outcome` how the
session ended, and `code` the close code of its socket.
"""
NAMES = ("session", "runtime", "sender", "to")
"""Columns that identify somebody: pseudonymised if the operator wants that."""

_AT_ONCE = 100  # ids


def messages_table(rows: Columns, node: str, worker: str) -> pa.Table:
    """The rows of messages as stored; texts are dictionaries, except for the id."""
    numbers = memoryview(rows.numbers)
    at, latency = _floats(numbers.cast("d")[::4]), _singles(numbers.cast("f")[2::8])
    repeated, sender, to, size, id_lengths = (
        _ints(numbers.cast("i")[place::8]) for place in range(3, 8)
    )
    same = _ints(memoryview(bytes(4 * len(rows))).cast("i"))
    columns = {
        "at": pc.cast(pc.cast(_micros(at), pa.int64()), STORED.field("at").type),
        "node": pa.DictionaryArray.from_arrays(same, texts([node])),
        "worker": pa.DictionaryArray.from_arrays(same, texts([worker])),
        "id": _ids(rows.ids.getvalue(), id_lengths),
        "sender": _spread(rows.senders.shown, pa.string(), sender),
        "to": _spread(rows.to.shown, pa.string(), to),
        "size": size,
        "latency_us": pc.cast(_between(_NONE, _micros(latency), _LATEST), pa.int32()),
    }
    for name, values in zip(REPEATED, zip(*rows.repeated, strict=True), strict=True):
        columns[name] = _spread(values, _FROM_RECORD.field(name).type, repeated)
    return pa.table({name: columns[name] for name in STORED.names})


def sessions_table(rows: Sequence[SessionRecord], node: str, worker: str) -> pa.Table:
    """The rows of sessions as stored."""
    at, lasted = (
        _floats(memoryview(array("d", numbers)))
        for numbers in ([row.at for row in rows], [row.lasted for row in rows])
    )
    runtimes = [cut(row.runtime) for row in rows]
    words: dict[str, list[str]] = {
        "node": [node] * len(rows), "worker": [worker] * len(rows),
        "session": [row.session for row in rows], "runtime": runtimes, "sender": runtimes,
        "outcome": [row.ending for row in rows], "event": [row.event for row in rows],
    }  # fmt: skip
    numbers: dict[str, list[Any]] = {
        "code": [row.code for row in rows], "resumptions": [row.resumptions for row in rows],
        "size": [row.size for row in rows],
    }  # fmt: skip
    columns: dict[str, pa.Array] = {
        "at": pc.cast(pc.cast(_micros(at), pa.int64()), STORED.field("at").type),
        "lasted_s": pc.cast(_between(_NONE, pc.floor(lasted), _LATEST), pa.int32()),
    }
    for field in (*STORED, *OF_SESSIONS):
        if field.name in columns:
            continue
        if field.type == pa.string():
            stored = texts(words.get(field.name, [""] * len(rows)))
            columns[field.name] = stored if field.name == "id" else stored.dictionary_encode()
        else:
            values = numbers.get(field.name, [0] * len(rows))
            columns[field.name] = pc.cast(_ints(memoryview(array("i", values))), field.type)
    return pa.table({name: columns[name] for name in (*STORED.names, *OF_SESSIONS.names)})


def texts(values: Sequence[str]) -> pa.Array:
    """An Arrow array of texts."""
    return _cut("".join(values), _ints(memoryview(array("i", map(len, values)))))


def hours_of(table: pa.Table) -> dict[int, pa.Table]:
    """The table by hour: beginning of the hour in epoch seconds -> its rows."""
    hours = pc.divide(pc.cast(table["at"], pa.int64()), _HOUR)
    distinct = pc.unique(hours)
    if len(distinct) == 1:
        return {distinct[0].as_py() * 3600: table}
    return {hour.as_py() * 3600: table.filter(pc.equal(hours, hour)) for hour in distinct}


def _floats(numbers: memoryview[float]) -> pa.Array:
    return pa.Array.from_buffers(
        pa.float64(), len(numbers), [None, pa.py_buffer(numbers.tobytes())]
    )


def _singles(numbers: memoryview[float]) -> pa.Array:
    """Numbers of single precision, in double."""
    single = [None, pa.py_buffer(numbers.tobytes())]
    return pc.cast(pa.Array.from_buffers(pa.float32(), len(numbers), single), pa.float64())


def _ints(numbers: memoryview[int]) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers.tobytes())])


_MILLION, _NONE, _LATEST = _floats(memoryview(array("d", [1e6, 0.0, 2**31 - 1])))
_HOUR = pc.cast(_floats(memoryview(array("d", [3.6e9]))), pa.int64())[0]  # in microseconds


def _micros(seconds: pa.Array) -> pa.Array:
    return pc.round(pc.multiply(seconds, _MILLION))


def _between(low: pa.Scalar, values: pa.Array, high: pa.Scalar) -> pa.Array:
    return pc.max_element_wise(low, pc.min_element_wise(values, high))


def _cut(joined: str, lengths: pa.Array) -> pa.Array:
    """Split a concatenation of texts by their lengths in characters."""
    if not joined.isascii():
        ends = pc.cumulative_sum(lengths).to_pylist()
        begins = [0, *ends[:-1]]
        parts = [joined[begin:end].encode() for begin, end in zip(begins, ends, strict=True)]
        lengths = _ints(memoryview(array("i", map(len, parts))))
    begin = _ints(memoryview(array("i", [0])))
    ends = pc.cumulative_sum(pa.concat_arrays([begin, lengths]))
    text = pa.py_buffer(joined.encode())
    return pa.Array.from_buffers(pa.string(), len(lengths), [None, ends.buffers()[1], text])


def _ids(joined: str, lengths: pa.Array) -> pa.Array:
    """The ids without tokens. Releases the GIL now and then."""
    longest = pc.max(lengths).as_py()
    if longest is None or longest <= PLAIN:
        return _cut(joined, lengths)
    shown: list[str] = []
    end, has_changed = 0, False
    for number, length in enumerate(lengths.to_pylist()):
        begin, end = end, end + length
        id_ = joined[begin:end]
        shown.append(cut_id(id_))
        has_changed = has_changed or shown[-1] != id_
        if number % _AT_ONCE == 0:
            time.sleep(0)
    return texts(shown) if has_changed else _cut(joined, lengths)


def _spread(values: Sequence[Any], kind: pa.DataType, numbers: pa.Array) -> pa.Array:
    """The values for numbers; texts as a dictionary."""
    if kind != pa.string():
        return pc.cast(_ints(memoryview(array("i", values))), kind).take(numbers)
    distinct = texts(values).dictionary_encode()
    indices = distinct.indices.take(numbers)
    return pa.DictionaryArray.from_arrays(indices, distinct.dictionary)
