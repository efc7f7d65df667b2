"""The inner loop of the roll-up: raw files counted in pieces by Arrow, in Spark's Python workers.

    pieces (hour, files) ── mapInArrow ─► counts of each piece, which can be added

Parquet stores a text as a number into a dictionary, and Arrow groups by these numbers: a text is
processed once per piece, not per row. Spark groups rows by the texts themselves, which took eight
times the processor time. Spark distributes the pieces, repeats failures, and does everything that
follows.

This file is sent to the executors with `shipping`: they need pyarrow, pandas (required by Spark)
and access to the record. At most ROWS_AT_ONCE rows are in memory, whatever the size of a file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from spark.jobs.places import place

ROWS_AT_ONCE = 1_000_000
_BATCH = 262_144
_TEXT = pa.dictionary(pa.int32(), pa.string())
_NUMBERS = {"size": pa.int32(), "listeners": pa.int32(), "code": pa.int32()}
_WHAT = ("type", "component", "outcome", "effect", "rule")
_COUNTED = {
    "messages": ([], "count_all"),
    "bytes": ("size", "sum"),
    "deliveries": ("listeners", "sum"),
}
_P2P = "/p2phandler|/p2prequester"
_BEYOND_HEAD = rf"(?s)^([^/]*/[^/]*/[^/]*)(?:(?:/[^/]*)?({_P2P})(?:/.*)?|/.*)$"
Count = Callable[[pa.Table], Iterator[pa.Table]]
RECORD = (
    dict.fromkeys(("node", "worker", "session", "runtime", "id", "sender", "to", *_WHAT), _TEXT)
    | _NUMBERS
    | {"at": pa.timestamp("us"), "asserted": pa.bool_(), "latency_us": pa.int32()}
    | {"event": _TEXT, "lasted_s": pa.int32(), "resumptions": pa.int32()}
)
"""The columns of a raw file. One that an older node did not write yet may be missing."""
ESSENTIAL = ("at", "type", "sender", "to", "outcome")
"""Without these a file is not of the record."""


class WrongColumns(ValueError):
    """A Parquet file has not the columns of the record."""


def counted(
    count: Count, columns: dict[str, pa.DataType], root: str, of_sessions: bool = False
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What `mapInArrow` calls: rows (hour, folder, names) in, what `count` makes of them out.

    Hours are in seconds since the epoch. `columns` are those read; `root` is a path or URL. Rows of
    messages are counted, or those of sessions.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        system, folder_of_all = place(root)
        for piece in (piece for batch in batches for piece in batch.to_pylist()):
            paths = [f"{folder_of_all}/{piece['folder']}/{name}" for name in piece["names"]]
            for read in _read(system, paths, columns | {"event": _TEXT}, of_sessions):
                rows = _only(read, of_sessions)
                for found in count(rows) if len(rows) else ():
                    hour = pa.repeat(pa.scalar(piece["hour"], pa.int64()), len(found))
                    yield from found.add_column(0, "hour", hour).combine_chunks().to_batches()

    return run


# --- what is counted ------------------------------------------------------------------------------
TRAFFIC = dict.fromkeys(("sender", "to", *_WHAT), _TEXT) | _NUMBERS | {"asserted": pa.bool_()}


def traffic(rows: pa.Table) -> Iterator[pa.Table]:
    """By the heads of both addresses and by what became of the message.

    A head goes up to the third slash; that of a P2P handler or requester tells so behind it.
    """
    rows = rows.set_column(
        rows.column_names.index("asserted"), "asserted", pc.cast(rows["asserted"], pa.int64())
    )
    keys = {
        "from_head": _changed(rows["sender"], _head),
        "to_head": _changed(rows["to"], _head),
        **{name: rows[name] for name in (*_WHAT, "code")},
    }
    yield _summed(rows, keys, _COUNTED | {"asserted": ("asserted", "sum")})


PARTIES = dict.fromkeys(("sender", "runtime", "session", "to", "outcome"), _TEXT) | {
    name: _NUMBERS[name] for name in ("size", "listeners")
}


def parties(reached: Sequence[str], rows: pa.Table) -> Iterator[pa.Table]:
    """By talker, by runtime, by listener if the outcome is one of `reached`.

    A session stands for a runtime that is not known.
    """
    heard = rows.filter(_is_in(rows["outcome"], reached))
    for role, of, address in (
        ("talker", rows, rows["sender"]),
        ("runtime", rows, _runtime(rows)),
        ("listener", heard, heard["to"]),
    ):
        found = _summed(of, {"address": address}, _COUNTED)
        named = found.filter(pc.not_equal(found["address"], ""))
        yield named.add_column(0, "role", pa.repeat(pa.scalar(role), len(named)))


LATENCY = dict.fromkeys(("type", "component", "outcome"), _TEXT) | {"latency_us": pa.int32()}


def latency(handed_over: Sequence[str], growth: float, rows: pa.Table) -> Iterator[pa.Table]:
    """By type, component and bucket of the histogram, of the outcomes `handed_over`."""
    rows = rows.filter(_is_in(rows["outcome"], handed_over))
    yield _summed(
        rows,
        {
            "type": rows["type"],
            "component": rows["component"],
            "bucket": _bucket(rows["latency_us"], growth),
        },
        {"messages": ([], "count_all"), "highest_us": ("latency_us", "max")},
    )


SESSIONS = {
    "event": _TEXT, "outcome": _TEXT, "code": pa.int32(), "lasted_s": pa.int32(),
    "resumptions": pa.int32(), "size": pa.int32(),
}  # fmt: skip


def sessions(growth: float, rows: pa.Table) -> Iterator[pa.Table]:
    """By event, ending and code, and by how long they lasted: the bucket of a histogram."""
    yield _summed(
        rows,
        {
            "event": rows["event"],
            "ending": rows["outcome"],
            "code": rows["code"],
            "bucket": _bucket(rows["lasted_s"], growth),
        },
        {
            "sessions": ([], "count_all"),
            "resumptions": ("resumptions", "sum"),
            "longest_s": ("lasted_s", "max"),
            "bytes": ("size", "sum"),
        },
    )


# --- how ------------------------------------------------------------------------------------------
def _read(
    system: fs.FileSystem, paths: list[str], columns: dict[str, pa.DataType], of_sessions: bool
) -> Iterator[pa.Table]:
    """The rows of the files, about ROWS_AT_ONCE at a time; columns a file lacks are null.

    If they are wanted for those of sessions, files without any are passed over.
    """
    schema = pa.schema(columns)
    held: list[pa.RecordBatch] = []
    for path in paths:
        with system.open_input_file(path) as source:
            if of_sessions and "event" not in pq.read_schema(source).names:
                continue
            for batch in batches_of(source, columns):
                held.append(completed(batch, schema))
                if sum(map(len, held)) >= ROWS_AT_ONCE:
                    yield _joined(held)
                    held = []
    if held:
        yield _joined(held)


def batches_of(source: Any, columns: dict[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    """Those of the columns that an open file has, some rows at a time. Raises WrongColumns."""
    metadata = pq.read_metadata(source)
    stored = metadata.schema.to_arrow_schema()
    _check_columns(stored)
    there = [name for name in columns if name in stored.names]
    texts = [name for name in there if columns[name] == _TEXT]
    file = pq.ParquetFile(source, metadata=metadata, read_dictionary=texts)
    yield from file.iter_batches(_BATCH, columns=there, use_threads=False)


def _only(rows: pa.Table, of_sessions: bool) -> pa.Table:
    event = _whole(rows["event"])
    if event.null_count == len(event):
        return rows.slice(0, 0) if of_sessions else rows
    return rows.filter(pc.is_valid(event) if of_sessions else pc.is_null(event))


def _bucket(numbers: Any, growth: float) -> Any:
    at_least_one = pc.cast(pc.max_element_wise(numbers, 1), pa.float64())
    return pc.cast(pc.ceil(pc.divide(pc.ln(at_least_one), math.log(growth))), pa.int32())


def _check_columns(stored: pa.Schema) -> None:
    if missing := [name for name in ESSENTIAL if name not in stored.names]:
        raise WrongColumns(f"there is no column {', '.join(missing)}")
    for field in stored:
        if field.name in RECORD and not _is_alike(field.type, RECORD[field.name]):
            raise WrongColumns(f"the column {field.name} is of type {field.type}")


def _is_alike(stored: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_timestamp(wanted):
        return bool(pa.types.is_timestamp(stored))
    if pa.types.is_dictionary(wanted):
        texts = stored.value_type if pa.types.is_dictionary(stored) else stored
        return bool(pa.types.is_string(texts) or pa.types.is_large_string(texts))
    return bool(stored == wanted)


def completed(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the columns of the schema; those they lack are null."""
    there = set(rows.schema.names)
    columns = [
        rows[field.name].cast(field.type)
        if field.name in there
        else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _joined(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()


def _summed(rows: pa.Table, keys: dict[str, Any], values: dict[str, Any]) -> pa.Table:
    """One row for each combination of keys: texts are compared by their numbers."""
    whole = {name: _whole(key) for name, key in keys.items()}
    codes = {
        f"key {name}": key.indices if isinstance(key, pa.DictionaryArray) else key
        for name, key in whole.items()
    }
    summed = {column for column, _ in values.values() if column}
    table = pa.table(codes | {name: rows[name] for name in summed})
    made = table.group_by(list(codes), use_threads=False).aggregate(list(values.values()))
    columns = {
        name: (
            key.dictionary.take(_whole(made[f"key {name}"]))
            if isinstance(key, pa.DictionaryArray)
            else made[f"key {name}"]
        )
        for name, key in whole.items()
    }
    for name, (column, function) in values.items():
        columns[name] = made[f"{column}_{function}" if column else function]
    return pa.table(columns)


def _whole(column: Any) -> Any:
    """A column in one piece."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _changed(column: Any, change: Callable[[pa.Array], pa.Array]) -> pa.DictionaryArray:
    """A column of texts, each changed once and not for each row."""
    texts = _whole(column)
    changed = change(texts.dictionary).dictionary_encode()
    return pa.DictionaryArray.from_arrays(changed.indices.take(texts.indices), changed.dictionary)


def _head(addresses: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(addresses, pattern=_BEYOND_HEAD, replacement=r"\1\2")


def _is_in(column: Any, words: Sequence[str]) -> pa.Array:
    texts = _whole(column)
    return pc.is_in(texts.dictionary, value_set=pa.array(words)).take(texts.indices)


def _runtime(rows: pa.Table) -> pa.DictionaryArray:
    runtime, session = _whole(rows["runtime"]), _whole(rows["session"])
    if not runtime.null_count and "" not in runtime.dictionary.to_pylist():
        return runtime
    known = runtime.dictionary_decode()
    is_known = pc.fill_null(pc.not_equal(known, ""), False)
    return pc.if_else(is_known, known, session.dictionary_decode()).dictionary_encode()
