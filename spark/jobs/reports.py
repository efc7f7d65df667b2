"""The tables of a report, each a function of roll-up rows that carry the `period` they count for.

A period is an hour, a day, a week or a month; rows of several periods may be processed together,
which is how the hourly job makes many reports in one pass. Tables made of the same rows come from
one query and are told apart by the column `table`: planning a query takes Spark longer than
processing such rows. Every table is ranked and cut per period, ties are broken by the keys, so that
a re-run gives the same rows in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import TimestampType

from spark.jobs import histogram, schema
from spark.jobs.outcomes import EFFECTS, FAILED, RESERVATION_EVENTS, SESSION_EVENTS

OUTCOMES = (
    "delivered", "queued", "answered", "undeliverable", "blocked", "refused", "dropped",
)  # fmt: skip
LONGEST = 200
"""Rows a table of a report has at most."""
LONGEST_OF_TOP = 100
COUNTS = ("messages", "bytes", "deliveries", "asserted", *OUTCOMES)
TOTALS, CAUSES, SERVICES = "totals", "causes", "services"
TRAFFIC: dict[str, tuple[str, ...]] = {
    TOTALS: (),
    "pairs": ("from_domain", "to_domain"),
    "types": ("type",),
    "components": ("component",),
    "schemes": ("from_scheme", "to_scheme"),
    CAUSES: ("outcome", "code", "effect", "rule"),
    "rules": ("effect", "rule"),
    SERVICES: ("to_service", "to_domain"),
}
"""Tables made of traffic, and what they tell it by. Causes are why messages did not arrive: the
outcome, the node's answer and the rule that decided. Rules are those that decided over any message;
services what stands in front of a domain, and the signalling of P2P connections."""
SESSIONS, SESSION_HOURS = "sessions", "session_hours"
LASTED = ("event", "ending", "code")
"""What the tables of sessions and reservations tell them by."""
RESERVATIONS, RESERVATION_HOURS = "reservations", "reservation_hours"
RELAYED = "relayed"
P2P = "p2p"
PEERS, NETWORKS = "peers", "networks"
SIDES = ("to_messages", "to_bytes", "to_failed", "from_messages", "from_bytes", "from_failed")
TALKERS, LISTENERS, NEW, SILENT = "talkers", "listeners", "new_runtimes", "silent_runtimes"
NOW, PREVIOUS, EARLIER = 0, 1, 2
"""Ages of rows, seen from the period they are compared with."""


def counts(outcome: str = "outcome") -> list[Column]:
    """Messages by what became of them, as columns of an aggregate."""
    return [
        *(f.sum(name).alias(name) for name in COUNTS[:4]),
        *(
            f.sum(f.when(f.col(outcome) == word, f.col("messages")).otherwise(0)).alias(word)
            for word in OUTCOMES
        ),
    ]


def totals(traffic: DataFrame) -> DataFrame:
    """The sums of a period."""
    return traffic.groupBy("period").agg(*counts())


def by_hour(traffic: DataFrame, *more: str) -> DataFrame:
    """The sums of each hour, and of what else is named."""
    failed = sum((f.col(name) for name in FAILED), f.lit(0))
    decided = (
        f.sum(f.when(f.col("effect") == effect, f.col("messages")).otherwise(0)).alias(name)
        for name, effect in EFFECTS.items()
    )
    return (
        traffic.groupBy("period", "hour", *more)
        .agg(*counts(), *decided)
        .withColumn("failed", failed)
    )


def by_day(hours: DataFrame) -> DataFrame:
    """What `by_hour` tells, by day, for a period of very many hours."""
    sums = (*COUNTS, *EFFECTS, "failed")
    return hours.groupBy("period", f.date_trunc("day", "hour").alias("hour")).agg(
        *(f.sum(name).alias(name) for name in sums)
    )


def traffic(rows: DataFrame, longest: int = LONGEST) -> DataFrame:
    """The tables named in TRAFFIC, the largest rows first. Keys of other tables are null."""
    keys = list(dict.fromkeys(key for keys in TRAFFIC.values() for key in keys))
    sets = [[f.col("period"), *(f.col(key) for key in of)] for of in TRAFFIC.values()]
    made = (
        rows.withColumn("ended", f.col("outcome"))
        .groupingSets(sets, "period", *keys)
        .agg(*counts("ended"), f.grouping_id().alias("set"))
    )
    table = f.lit(None)
    for name, of in TRAFFIC.items():
        # Spark numbers a set of keys by a bit for each that it leaves out.
        number = sum(1 << bit for bit, key in enumerate(reversed(keys)) if key not in of)
        table = f.when(f.col("set") == number, name).otherwise(table)
    named = made.withColumn("table", table).drop("set")
    real = (
        f.when(f.col("table") == CAUSES, f.col("outcome").isin(*FAILED))
        .when(f.col("table") == SERVICES, f.col("to_service") != "")
        .otherwise(True)
    )
    return ranked(named.where(real), ("table",), keys, f.lit(longest))


def neighbours(rows: DataFrame, home: str, longest: int = LONGEST) -> DataFrame:
    """Messages to and from each peer domain, and each legacy network.

    A message between two foreign domains counts at both: once as `to`, once as `from`.

    Args:
        rows: traffic.
        home: the node's own domain, which is no peer.
        longest: rows of each table.
    """
    failed = f.when(f.col("outcome").isin(*FAILED), f.col("messages")).otherwise(0)
    none = f.lit(0).cast("long")
    sides = None
    for table, kind in ((PEERS, "domain"), (NETWORKS, "network")):
        for side, other in (("to", "from"), ("from", "to")):
            some = rows.select(
                "period",
                f.lit(table).alias("table"),
                f.col(f"{side}_{kind}").alias("name"),
                f.col("messages"),
                f.col("messages").alias(f"{side}_messages"),
                f.col("bytes").alias(f"{side}_bytes"),
                failed.cast("long").alias(f"{side}_failed"),
                *(none.alias(f"{other}_{what}") for what in ("messages", "bytes", "failed")),
            ).where(~f.col("name").isin("", home))
            sides = some if sides is None else sides.unionByName(some)
    assert sides is not None  # noqa: S101 (for the type checker)
    summed = sides.groupBy("period", "table", "name").agg(
        *(f.sum(name).alias(name) for name in ("messages", *SIDES))
    )
    return ranked(summed, ("table",), ("name",), f.lit(longest))


def parties(rows: DataFrame, longest: int = LONGEST) -> DataFrame:
    """Top talkers and listeners, new and silent runtimes.

    Rows carry their `age`: new is who is there now and was not before, silent who was there in the
    previous period and is not now.
    """
    is_now, is_previous = f.col("age") == NOW, f.col("age") == PREVIOUS
    summed = rows.groupBy("period", "role", "address").agg(
        *(f.sum(f.when(is_now, f.col(n))).alias(n) for n in ("messages", "bytes", "deliveries")),
        f.max(f.when(is_now, f.col("hour"))).alias("last_hour"),
        f.sum(f.when(is_previous, f.col("messages"))).alias("before"),
        f.max(f.when(is_previous, f.col("hour"))).alias("last_before"),
        f.max("age").alias("oldest"),
    )
    role, is_there = f.col("role"), f.col("messages").isNotNull()
    table = (
        f.when((role == schema.TALKER) & is_there, TALKERS)
        .when((role == schema.LISTENER) & is_there, LISTENERS)
        .when((role == schema.RUNTIME) & is_there & (f.col("oldest") == NOW), NEW)
        .when((role == schema.RUNTIME) & ~is_there & f.col("before").isNotNull(), SILENT)
    )
    found = (
        summed.withColumn("table", table)
        .where(f.col("table").isNotNull())
        .withColumns(
            {
                "messages": f.coalesce("messages", "before"),
                "last_hour": f.coalesce("last_hour", "last_before"),
            }
        )
        .drop("role", "before", "last_before", "oldest")
    )
    top = f.col("table").isin(TALKERS, LISTENERS)
    most = f.when(top, min(longest, LONGEST_OF_TOP)).otherwise(longest)
    return ranked(found, ("table",), ("address",), most)


def distinct(sketches: DataFrame) -> DataFrame:
    """How many different talkers, listeners and runtimes, within about 2 %."""
    return sketches.groupBy("period", "role").agg(
        f.hll_sketch_estimate(f.hll_union_agg("sketch")).alias("estimate")
    )


def latency(buckets: DataFrame, hours: DataFrame) -> DataFrame:
    """Percentiles of all relayed messages, of these by hour, and by type and component.

    `buckets` are those of all messages, `hours` those of relayed ones by hour.
    """
    rows = None
    for table, of, keys in (
        ("latency", hours, ()),
        ("latency_hours", hours, ("hour",)),
        ("latency_types", buckets, ("type", "component")),
    ):
        null = {
            name: f.lit(None).cast(kind)
            for name, kind in (("hour", "timestamp"), ("type", "string"), ("component", "string"))
            if name not in keys
        }
        some = of.withColumns({"table": f.lit(table), **null}).select(
            "period", "table", "hour", "type", "component", "bucket", "messages", "highest_us"
        )
        rows = some if rows is None else rows.union(some)
    assert rows is not None  # noqa: S101 (for the type checker)
    return histogram.percentiles(rows, ("period", "table", "hour", "type", "component"))


def p2p(rows: DataFrame, longest: int = LONGEST) -> DataFrame:
    """Set-ups of P2P connections between domains, of traffic, beside all messages there.

    A set-up is a `create` to a handler or requester; `share` is that of signalling among the
    messages between the two domains. What peers say over a connection passes no node.
    """
    is_p2p, is_set_up = f.col("to_service") == P2P, f.col("type") == "create"
    failed = f.col("outcome").isin(*FAILED)

    def summed(what: Column, name: str) -> Column:
        return f.sum(f.when(what, f.col("messages")).otherwise(0)).alias(name)

    found = rows.groupBy("period", "from_domain", "to_domain").agg(
        f.sum("messages").alias("messages"),
        summed(is_p2p, "signalling"),
        summed(is_p2p & is_set_up, "set_ups"),
        summed(is_p2p & is_set_up & failed, "failed"),
    )
    share = f.round(f.col("signalling") / f.col("messages"), 4).alias("share")
    keys = ("from_domain", "to_domain")
    return ranked(found.where(f.col("signalling") > 0), (), keys, f.lit(longest)).select(
        "period", "rank", "of", *keys, "set_ups", "failed", "signalling", "messages", share
    )


def sessions(rows: DataFrame, longest: int = LONGEST) -> DataFrame:
    """Steps of sessions: how many, how often resumed before their end, and seconds they lasted.

    A session that ended lasted since it was opened; a socket that was lost, since it had it.
    """
    return _lasting(rows.where(f.col("event").isin(*SESSION_EVENTS)), longest).drop("bytes")


def reservations(rows: DataFrame, longest: int = LONGEST) -> DataFrame:
    """Reservations of bandwidth that were made, refused, ended, and what was relayed for them.

    `ending` is the traffic class or, of those that ended, the reason; they lasted since they were
    made. Of what was relayed the bytes count, not how often they were told.
    """
    found = _lasting(rows.where(~f.col("event").isin(*SESSION_EVENTS)), longest)
    return found.drop("resumptions").withColumnRenamed("sessions", "times")


def _lasting(rows: DataFrame, longest: int) -> DataFrame:
    percentiles = (f.col(histogram.name(p)).alias(f"{histogram.name(p)}_s") for p in (50, 90, 99))
    counts = rows.groupBy("period", *LASTED).agg(
        f.sum("resumptions").alias("resumptions"),
        f.sum(f.coalesce("bytes", f.lit(0))).alias("bytes"),
    )
    lasted = histogram.percentiles(
        rows.withColumnsRenamed({"sessions": "messages", "longest_s": "highest_us"}),
        ("period", *LASTED),
    )
    found = lasted.join(counts, ["period", *LASTED])
    return ranked(found, (), LASTED, f.lit(longest)).select(
        "period", "rank", "of", *LASTED, f.col("messages").alias("sessions"), "resumptions",
        *percentiles, f.col("highest_us").alias("longest_s"), "bytes",
    )  # fmt: skip


def session_hours(rows: DataFrame) -> DataFrame:
    """How many sessions were opened, resumed, lost their socket and ended, by hour."""
    mine = rows.where(f.col("event").isin(*SESSION_EVENTS))
    return mine.groupBy("period", "hour").agg(
        *(
            f.sum(f.when(f.col("event") == event, f.col("sessions")).otherwise(0)).alias(event)
            for event in SESSION_EVENTS
        )
    )


def reservation_hours(rows: DataFrame) -> DataFrame:
    """How many reservations were made, refused and ended, and bytes relayed for them, by hour."""
    others = rows.where(~f.col("event").isin(*SESSION_EVENTS))
    event, none = f.col("event"), f.lit(0)
    return others.groupBy("period", "hour").agg(
        *(
            f.sum(f.when(event == told, f.col("sessions")).otherwise(none)).alias(name)
            for name, told in RESERVATION_EVENTS.items()
        ),
        f.sum(f.when(event == RELAYED, f.col("bytes")).otherwise(none)).alias("bytes"),
    )


def ranked(frame: DataFrame, of: Sequence[str], keys: Sequence[str], longest: Column) -> DataFrame:
    """The largest rows of each period, with their `rank`, and `of` how many they are."""
    period = Window.partitionBy("period", *of)
    order = period.orderBy(f.desc("messages"), *keys)
    return frame.withColumns(
        {"rank": f.row_number().over(order), "of": f.count(f.lit(1)).over(period)}
    ).where(f.col("rank") <= longest)


def plain(table: DataFrame) -> DataFrame:
    """A table ready to be fetched: moments as ISO text, decimals as numbers."""
    return table.select(
        *(
            f.date_format(field.name, "yyyy-MM-dd'T'HH:mm:ssXXX").alias(field.name)
            if isinstance(field.dataType, TimestampType)
            else f.col(field.name)
            for field in table.schema
        )
    )
