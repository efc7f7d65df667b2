"""The columns of every stored table, declared once.

`RAW` is what the recorder writes: a row for each recipient of each message, and for each step of a
session, which is the only one with an `event`. `ROLL_UP` is the hourly roll-up, and `DAYS` what is
made of it by day and by month; all reports are made from these. Each of their rows has its `hour`
and the `run` that made it; the ledger says which run counts for an hour. All times are UTC.
"""

from __future__ import annotations

from pyspark.sql import types as t

RAW = t.StructType(
    [
        t.StructField("at", t.TimestampType()),
        t.StructField("node", t.StringType()),
        t.StructField("worker", t.StringType()),
        t.StructField("session", t.StringType()),
        t.StructField("runtime", t.StringType()),
        t.StructField("id", t.StringType()),
        t.StructField("type", t.StringType()),
        t.StructField("sender", t.StringType()),
        t.StructField("to", t.StringType()),
        t.StructField("size", t.IntegerType()),
        t.StructField("listeners", t.IntegerType()),
        t.StructField("outcome", t.StringType()),
        t.StructField("component", t.StringType()),
        t.StructField("code", t.IntegerType()),
        t.StructField("effect", t.StringType()),
        t.StructField("rule", t.StringType()),
        t.StructField("asserted", t.BooleanType()),
        t.StructField("latency_us", t.IntegerType()),
        t.StructField("event", t.StringType()),
        t.StructField("lasted_s", t.IntegerType()),
        t.StructField("resumptions", t.IntegerType()),
    ]
)
PARTITION = t.StructType(
    [t.StructField("date", t.DateType()), t.StructField("hour", t.IntegerType())]
)

_RUN = [t.StructField("run", t.StringType()), t.StructField("hour", t.TimestampType())]
_COUNTS = [
    t.StructField("messages", t.LongType()),
    t.StructField("bytes", t.LongType()),
    t.StructField("deliveries", t.LongType()),
    t.StructField("asserted", t.LongType()),
]
TRAFFIC = t.StructType(
    [
        *_RUN,
        *(
            t.StructField(name, t.StringType())
            for name in (
                "from_scheme", "from_domain", "from_network", "to_scheme", "to_domain",
                "to_network", "to_service", "type", "component", "outcome", "effect", "rule",
            )
        ),
        t.StructField("code", t.IntegerType()),
        *_COUNTS,
    ]
)  # fmt: skip
PARTIES = t.StructType(
    [
        *_RUN,
        t.StructField("role", t.StringType()),
        t.StructField("address", t.StringType()),
        *_COUNTS[:3],
    ]
)
LATENCY = t.StructType(
    [
        *_RUN,
        t.StructField("type", t.StringType()),
        t.StructField("component", t.StringType()),
        t.StructField("bucket", t.IntegerType()),
        t.StructField("messages", t.LongType()),
        t.StructField("highest_us", t.IntegerType()),
    ]
)
DISTINCT = t.StructType(
    [
        *_RUN,
        t.StructField("role", t.StringType()),
        t.StructField("part", t.IntegerType()),
        t.StructField("sketch", t.BinaryType()),
    ]
)
SESSIONS = t.StructType(
    [
        *_RUN,
        t.StructField("event", t.StringType()),
        t.StructField("ending", t.StringType()),
        t.StructField("code", t.IntegerType()),
        t.StructField("bucket", t.IntegerType()),
        t.StructField("sessions", t.LongType()),
        t.StructField("resumptions", t.LongType()),
        t.StructField("longest_s", t.IntegerType()),
        t.StructField("bytes", t.LongType()),
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
    "hours": t.StructType(
        [*_RUN, *(t.StructField(name, t.StringType()) for name in ("outcome", "effect")), *_COUNTS]
    ),
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
