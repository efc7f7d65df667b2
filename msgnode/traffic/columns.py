"""The columns of the record as they are stored, and how rows are converted to them.

Columns are few and as the pipeline knows them; Spark derives schemes and domains later.
`spark.jobs.schema.RAW` is the same schema (a test compares the two).

Every row costs the event loop time, so a row is converted to columns when it is noted, while it is
in the processor's caches, and nothing of it is kept. What repeats from row to row (session,
decision) becomes one number, each of the two addresses another, found by one look-up; the numbers
of a row are packed at once. Texts are stored by these numbers too: they are not repeated for each
row, neither in memory nor for Parquet's own search for repetitions. Until a flush a RowBuffer holds
the rows, within bounds; the flush is done by Arrow, which leaves the GIL to the event loop.

Tokens are cut out of addresses when first seen, and out of ids at the flush.

Arrow is given buffers, never Python values: for one of these it would load pandas (45 MB, half a
second).
"""

from __future__ import annotations

import logging
import time
from array import array
from collections.abc import Sequence
from io import StringIO
from struct import Struct
from struct import error as StructError
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import astuple

from msgnode.core.record import SessionRecord, TrafficRecord
from msgnode.core.redaction import PLAIN, cut, cut_id

logger = logging.getLogger(__name__)

_NOTE_SECONDS = 0.000_2
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
OF_SESSIONS = pa.schema(
    [
        pa.field("event", pa.string()),
        pa.field("lasted_s", pa.int32()),
        pa.field("resumptions", pa.int32()),
    ]
)
"""Columns that only rows of sessions have. In such a row `sender` is the runtime, `outcome` how the
session ended, and `code` the close code of its socket.
"""
NAMES = ("session", "runtime", "sender", "to")
"""Columns that identify somebody: pseudonymised if the operator wants that."""

_TEXTS = ("session", "runtime", "type", "outcome", "component", "effect", "rule")
_REPEATED = (*_TEXTS, "code", "asserted", "listeners")
_AT_ONCE = 100  # ids
_WHOLE = Struct("=iii")
_ROW = Struct("=dfiiiii")
"""at, latency; numbers of the repeating values, of the sender and of `to`; size, length of
the id."""
DOES_NOT_FIT = (pa.ArrowException, StructError, ValueError, TypeError, OverflowError)


class _Repeated(dict[tuple[Any, ...], int]):
    """Numbers of combinations of repeating values, assigned when first seen."""

    def __missing__(self, values: tuple[Any, ...]) -> int:
        "".join(values[: len(_TEXTS)]).encode()  # these raise if a value does not fit
        _WHOLE.pack(*values[len(_TEXTS) :])
        number = self[values] = len(self)
        return number


class _Addresses(dict[str, int]):
    """Numbers of addresses, assigned when first seen.

    `shown` are the addresses without tokens.
    """

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[str] = []

    def __missing__(self, address: str) -> int:
        str.encode(address)  # as above
        number = self[address] = len(self)
        self.shown.append(cut(address))
        return number


class Columns:
    """Rows as columns, added by one thread; 50 bytes each plus what does not repeat."""

    __slots__ = ("_ids", "_numbers", "_repeated", "_senders", "_to")

    def __init__(self) -> None:
        self._numbers = bytearray()
        self._ids = StringIO()
        self._repeated = _Repeated()
        self._senders = _Addresses()
        self._to = _Addresses()

    def __len__(self) -> int:
        return len(self._numbers) // _ROW.size

    def add(self, record: TrafficRecord) -> None:
        """Add a row. Raises one of DOES_NOT_FIT, and adds nothing, if a value does not fit."""
        (
            at, session, id_, type_, sender, to, size, listeners, outcome, component, code,
            effect, rule, asserted, latency, runtime,
        ) = astuple(record)  # fmt: skip
        repeated = self._repeated[
            session, runtime, type_, outcome, component, effect, rule, code, asserted, listeners
        ]  # fmt: skip
        numbers = _ROW.pack(
            at, latency, repeated, self._senders[sender], self._to[to], size, len(id_)
        )
        self._ids.write(id_)
        self._numbers += numbers

    def table(self, node: str, worker: str) -> pa.Table:
        """The rows as stored; texts are dictionaries, except for the id."""
        rows = memoryview(self._numbers)
        at, latency = _floats(rows.cast("d")[::4]), _singles(rows.cast("f")[2::8])
        repeated, sender, to, size, id_lengths = (
            _ints(rows.cast("i")[place::8]) for place in range(3, 8)
        )
        same = _ints(memoryview(bytes(4 * len(self))).cast("i"))
        columns = {
            "at": pc.cast(pc.cast(_micros(at), pa.int64()), STORED.field("at").type),
            "node": pa.DictionaryArray.from_arrays(same, texts([node])),
            "worker": pa.DictionaryArray.from_arrays(same, texts([worker])),
            "id": _ids(self._ids.getvalue(), id_lengths),
            "sender": _spread(self._senders.shown, pa.string(), sender),
            "to": _spread(self._to.shown, pa.string(), to),
            "size": size,
            "latency_us": pc.cast(_between(_NONE, _micros(latency), _LATEST), pa.int32()),
        }
        for name, values in zip(_REPEATED, zip(*self._repeated, strict=True), strict=True):
            columns[name] = _spread(values, _FROM_RECORD.field(name).type, repeated)
        return pa.table({name: columns[name] for name in STORED.names})


class RowBuffer:
    """Rows in memory, which one thread adds and another takes all at once.

    Adding a row never blocks or fails, and touches no disk.

    Args:
        most: most rows in memory, including those taken and not `released`; further ones are lost.
    """

    def __init__(self, most: int) -> None:
        # Each of these is changed by one thread only: two by the adding one.
        self.noted = 0
        self.turned_away = 0
        self._may_note = most  # so many rows altogether, for now
        self._columns = Columns()
        self._sessions: list[SessionRecord] = []
        self._is_noting = False

    def __len__(self) -> int:
        return len(self._columns) + len(self._sessions)

    def note(self, record: TrafficRecord) -> None:
        """Add a row of a message."""
        noted = self.noted
        if noted >= self._may_note:
            self.turned_away += 1
            return
        self._is_noting = True
        try:
            self._columns.add(record)
            self.noted = noted + 1
        except DOES_NOT_FIT:
            self.turned_away += 1
            logger.exception("a traffic row does not fit the record")
        finally:
            self._is_noting = False

    def note_session(self, record: SessionRecord) -> None:
        """Add a row of a session."""
        if self.noted >= self._may_note:
            self.turned_away += 1
            return
        self._is_noting = True
        self._sessions.append(record)
        self.noted += 1
        self._is_noting = False

    def take(self) -> tuple[Columns, list[SessionRecord]]:
        """Remove and return all complete rows; later ones go to a new buffer."""
        columns, self._columns = self._columns, Columns()
        sessions, self._sessions = self._sessions, []
        while self._is_noting:  # a row that is being added may go to either
            time.sleep(_NOTE_SECONDS)
        return columns, sessions

    def released(self, rows: int) -> None:
        """Note that so many taken rows were written or lost."""
        self._may_note += rows


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
