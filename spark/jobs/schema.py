"""The columns of every stored table, declared once.

`RAW` is what the recorder writes: a row for each recipient of each message, and for each step of a
session, which is the only one with an `event`. `ROLL_UP` is the hourly roll-up, and `DAYS` what is
made of it by day and by month; all reports are made from these. Each of their rows has its `hour`
and the `run` that made it; the ledger says which run counts for an hour. All times are UTC.
"""

from __future__ import annotations

from pyspark.sql import types as t

_TEXT, _INTEGER, _LONG = t.StringType(), t.IntegerType(), t.LongType()
_TIME, _BOOLEAN = t.TimestampType(), t.BooleanType()


def _of(type_: t.DataType, names: str) -> list[t.StructField]:
    return [t.StructField(name, type_) for name in names.split()]


RAW = t.StructType(
    [
        *_of(_TIME, "at"),
        *_of(_TEXT, "node worker session runtime id type sender to"),
        *_of(_INTEGER, "size listeners"),
        *_of(_TEXT, "outcome component"),
        *_of(_INTEGER, "code"),
        *_of(_TEXT, "effect rule"),
        *_of(_BOOLEAN, "asserted"),
        *_of(_INTEGER, "latency_us"),
        *_of(_TEXT, "event"),
        *_of(_INTEGER, "lasted_s resumptions"),
    ]
)
PARTITION = t.StructType([*_of(t.DateType(), "date"), *_of(_INTEGER, "hour")])

_RUN = [*_of(_TEXT, "run"), *_of(_TIME, "hour")]
_COUNTS = _of(_LONG, "messages bytes deliveries asserted")
TRAFFIC = t.StructType(
    [
        *_RUN,
        *_of(_TEXT, "from_scheme from_domain from_network to_scheme to_domain to_network"),
        *_of(_TEXT, "to_service type component outcome effect rule"),
        *_of(_INTEGER, "code"),
        *_COUNTS,
    ]
)
PARTIES = t.StructType([*_RUN, *_of(_TEXT, "role address"), *_COUNTS[:3]])
LATENCY = t.StructType(
    [
        *_RUN,
        *_of(_TEXT, "type component"),
        *_of(_INTEGER, "bucket"),
        *_of(_LONG, "messages"),
        *_of(_INTEGER, "highest_us"),
    ]
)
DISTINCT = t.StructType(
    [*_RUN, *_of(_TEXT, "role"), *_of(_INTEGER, "part"), *_of(t.BinaryType(), "sketch")]
)
SESSIONS = t.StructType(
    [
        *_RUN,
        *_of(_TEXT, "event ending"),
        *_of(_INTEGER, "code bucket"),
        *_of(_LONG, "sessions resumptions"),
        *_of(_INTEGER, "longest_s"),
        *_of(_LONG, "bytes"),
    ]
)
ROLL_UP: dict[str, t.StructType] = {
    "traffic": TRAFFIC,
    "parties": PARTIES,
    "latency": LATENCY,
    "sessions": SESSIONS,
    "distinct": DISTINCT,
}
DAYS: dict[str, t.StructType] = {
    **ROLL_UP,
    "hours": t.StructType([*_RUN, *_of(_TEXT, "outcome effect"), *_COUNTS]),
    "latency_hours": t.StructType([*_RUN, *LATENCY.fields[4:]]),
}
"""The tables of a day or a month: those of its hours added up, and what is told by hour: `hours`,
`latency_hours` (of relayed messages) and `sessions`. There, `hour` is the hour, in the last two of
a month the day; in the others it is the start of the day or month."""

TALKER, LISTENER, RUNTIME = "talker", "listener", "runtime"
HANDED_OVER = ("delivered", "answered")
"""Outcomes of a message that reached its end here: their latency is what the node promises."""
REACHED = ("delivered", "answered", "queued")
"""Outcomes of a message that has or will have a listener."""
