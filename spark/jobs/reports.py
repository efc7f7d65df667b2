"""The tables of a report, each a function of roll-up rows that carry the `period` they count for.

A period is an hour, a day, a week or a month; rows of several periods may come together, which is
how the hourly job makes many reports in one pass. Every table is ranked and cut per period, ties
are broken by the keys, so that a re-run gives the same rows in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import TimestampType

from spark.jobs import histogram

OUTCOMES = (
    "delivered", "queued", "answered", "undeliverable", "blocked", "refused", "dropped",
)  # fmt: skip
FAILED = ("undeliverable", "blocked", "refused", "dropped")
LONGEST = 200
"""Rows a table of a report has at most."""


def counts() -> list[Column]:
    return [
        *(f.sum(name).alias(name) for name in ("messages", "bytes", "deliveries", "asserted")),
        *(
            f.sum(f.when(f.col("outcome") == outcome, f.col("messages")).otherwise(0)).alias(
                outcome
            )
            for outcome in OUTCOMES
        ),
    ]


def totals(traffic: DataFrame) -> DataFrame:
    return traffic.groupBy("period").agg(*counts())


def by_hour(traffic: DataFrame) -> DataFrame:
    return traffic.groupBy("period", "hour").agg(*counts())


def by_keys(traffic: DataFrame, keys: Sequence[str], longest: int = LONGEST) -> DataFrame:
    """Traffic by domain pair, type, component or scheme: the largest first."""
    return ranked(traffic.groupBy("period", *keys).agg(*counts()), keys, longest)


def causes(traffic: DataFrame, longest: int = LONGEST) -> DataFrame:
    """Why messages did not arrive: the outcome, the node's answer and the rule that decided."""
    keys = ("outcome", "code", "effect", "rule")
    failed = traffic.where(f.col("outcome").isin(*FAILED))
    return ranked(
        failed.groupBy("period", *keys).agg(f.sum("messages").alias("messages")), keys, longest
    )


def top_parties(parties: DataFrame, role: str, longest: int = LONGEST) -> DataFrame:
    summed = (
        parties.where(f.col("role") == role)
        .groupBy("period", "address")
        .agg(*(f.sum(name).alias(name) for name in ("messages", "bytes", "deliveries")))
    )
    return ranked(summed, ("address",), longest)


def distinct(sketches: DataFrame) -> DataFrame:
    """How many different talkers, listeners and runtimes, within about 2 %."""
    return sketches.groupBy("period", "role").agg(
        f.hll_sketch_estimate(f.hll_union_agg("sketch")).alias("estimate")
    )


def latency(buckets: DataFrame, keys: Sequence[str] = ()) -> DataFrame:
    return histogram.percentiles(buckets, ("period", *keys))


def appeared(
    parties: DataFrame, earlier: DataFrame, role: str, longest: int = LONGEST
) -> DataFrame:
    """Those of this period whom the earlier rows do not know."""
    return _only_in(parties, earlier, role, longest)


def fell_silent(
    parties: DataFrame, previous: DataFrame, role: str, longest: int = LONGEST
) -> DataFrame:
    """Those of the previous period of whom this one has nothing. Rows of `previous` carry the
    period they are compared with."""
    return _only_in(previous, parties, role, longest)


def _only_in(here: DataFrame, there: DataFrame, role: str, longest: int) -> DataFrame:
    known = there.where(f.col("role") == role).select("period", "address").distinct()
    found = (
        here.where(f.col("role") == role)
        .groupBy("period", "address")
        .agg(f.sum("messages").alias("messages"), f.max("hour").alias("last_hour"))
        .join(known, on=["period", "address"], how="left_anti")
    )
    return ranked(found, ("address",), longest)


def ranked(frame: DataFrame, keys: Sequence[str], longest: int) -> DataFrame:
    """The largest rows of each period with their `rank`, and `of` how many they are the largest."""
    period = Window.partitionBy("period")
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
