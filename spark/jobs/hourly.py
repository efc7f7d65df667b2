"""The hourly roll-up: pieces of the raw record in, five small tables out.

`counting` counts the rows, piece by piece; here the counts become tables. A row of `parties` or
`latency` is the result of one piece: an hour of several pieces has several for the same party, and
readers of the roll-up add them, as over hours. Sketches of the distinct parties are made from the
parties, which are few, not from the rows.

The parts of an address follow the rules of the node's own addresses (a test compares the two): text
before the first ":" is the scheme unless it has a slash; the domain is between "//" and the next
slash; the home domain is in lower case and without a service label, as `qos` in `qos.example.com`,
or `p2p` of the addresses by which runtimes set up direct connections. A legacy network is that of
an address such as `sip:bob@pbx.example.com` and is named after its stub: scheme and last two
labels.
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from spark.jobs import counting, histogram, schema

SKETCH_SIZE = 14
"""log2 of the registers of a distinct count: a standard error of 0.8 %."""
_COUNTS = ("messages", "bytes", "deliveries")
_WHAT = ("type", "component", "outcome", "effect", "rule", "code")
_HOUR = t.StructField("hour", t.LongType())
_HEADS = t.StructType(
    [
        _HOUR,
        t.StructField("from_head", t.StringType()),
        t.StructField("to_head", t.StringType()),
        *(field for field in schema.TRAFFIC if field.name in (*_WHAT, *_COUNTS, "asserted")),
    ]
)
_PARTIES = t.StructType([_HOUR, *schema.PARTIES.fields[2:]])
_LATENCY = t.StructType([_HOUR, *schema.LATENCY.fields[2:]])
_SESSIONS = t.StructType([_HOUR, *schema.SESSIONS.fields[2:]])

_SCHEME = r"^([^:/]+):"
_DOMAIN = r"^[^:/]+://([^/]*)"
_LABELS = "msg-node|registry|idm|catalogue|qos"
_SERVICE_LABEL = rf"^(?:{_LABELS})\."
_SERVICE = rf"^[^:/]+://({_LABELS})\."
_P2P = r"^(?:hyperty-)?runtime://[^/]*/p2p(?:handler|requester)$"
P2P = "p2p"
_MAILBOX = r"^[^:/]+:(?://)?[^/]*@([^/@:;?]+)"
OF_THE_FIELD = (
    "runtime", "hyperty-runtime", "hyperty", "mn", "domain", "domain-idp", "global",
    "hyperty-catalogue", "comm", "connection", "context", "resource", "fs", "user",
)  # fmt: skip
"""Schemes that no legacy network has."""


def from_pieces(pieces: DataFrame, root: str, run: str) -> dict[str, DataFrame]:
    """The tables of the record below `root`, but for the sketches.

    `pieces` are (hour in seconds since the epoch, folder, names of files in it).
    """
    made = {
        "traffic": traffic(_counted(pieces, root, counting.traffic, counting.TRAFFIC, _HEADS)),
        "parties": _counted(
            pieces, root, partial(counting.parties, schema.REACHED), counting.PARTIES, _PARTIES
        ),
        "latency": _counted(
            pieces,
            root,
            partial(counting.latency, schema.HANDED_OVER, histogram.GROWTH),
            counting.LATENCY,
            _LATENCY,
        ),
        "sessions": _counted(
            pieces,
            root,
            partial(counting.sessions, histogram.GROWTH),
            counting.SESSIONS,
            _SESSIONS,
            of_sessions=True,
        ),
    }
    return {
        name: frame.select(
            f.lit(run).alias("run"),
            f.timestamp_seconds("hour").alias("hour"),
            *(field.name for field in schema.ROLL_UP[name].fields[2:]),
        )
        for name, frame in made.items()
    }


def traffic(heads: DataFrame) -> DataFrame:
    """What went from where to where, and what became of it: heads of addresses taken apart."""
    derived = {
        "from_scheme": scheme(f.col("from_head")),
        "from_domain": home_domain(f.col("from_head")),
        "from_network": network(f.col("from_head")),
        "to_scheme": scheme(f.col("to_head")),
        "to_domain": home_domain(f.col("to_head")),
        "to_network": network(f.col("to_head")),
        "to_service": service(f.col("to_head")),
    }
    return (
        heads.withColumns(derived)
        .groupBy("hour", *derived, *_WHAT)
        .agg(*(f.sum(count).alias(count) for count in (*_COUNTS, "asserted")))
    )


def distinct(parties: DataFrame) -> DataFrame:
    """Sketches of who was there, from the `parties` of a run: a row for each hour and role.

    In two parts, because the estimate of a sketch that was merged from others does not depend on
    the order of its input, so a re-run gives the same.
    """
    return (
        parties.withColumn("part", f.pmod(f.hash("address"), f.lit(2)))
        .groupBy("run", "hour", "role", "part")
        .agg(f.hll_sketch_agg("address", f.lit(SKETCH_SIZE)).alias("sketch"))
    )


def _counted(
    pieces: DataFrame,
    root: str,
    count: counting.Count,
    columns: dict[str, pa.DataType],
    made: t.StructType,
    of_sessions: bool = False,
) -> DataFrame:
    return pieces.mapInArrow(counting.counted(count, columns, root, of_sessions), made)


def head(address: Column) -> Column:
    """The address up to its third slash: all that scheme and domain depend on, and cheap to cut."""
    return f.substring_index(address, "/", 3)


def scheme(address: Column) -> Column:
    """The scheme of an address."""
    return f.lower(f.regexp_extract(address, _SCHEME, 1))


def home_domain(address: Column) -> Column:
    """The domain of an address without its service label, in lower case."""
    return f.regexp_replace(
        f.lower(f.regexp_extract(address, _DOMAIN, 1)), f.lit(_SERVICE_LABEL), f.lit("")
    )


def service(head: Column) -> Column:
    """The service that an address is of: its label, `p2p`, or "" for none."""
    lowered = f.lower(head)
    return f.when(lowered.rlike(_P2P), P2P).otherwise(f.regexp_extract(lowered, _SERVICE, 1))


def network(head: Column) -> Column:
    """The legacy network of an address, as `sip.example.com`; "" for none."""
    host = f.regexp_extract(f.lower(head), _MAILBOX, 1)
    is_legacy = ~scheme(head).isin(*OF_THE_FIELD) & host.contains(".")
    return f.when(
        is_legacy, f.concat_ws(".", scheme(head), f.substring_index(host, ".", -2))
    ).otherwise("")
