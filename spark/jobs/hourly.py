"""The hourly roll-up: raw rows in, four small tables out.

A raw row is touched four times and each time as little of it as can be: grouping by a few short
columns is what Spark does fast, so addresses are cut to their heads before rows are grouped and
taken apart only after that, and no pass groups by more than it needs. Sketches of the distinct
parties are made from the parties, which are few, not from the rows.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark.jobs import addresses, histogram, schema

SKETCH_SIZE = 14
"""log2 of the registers of a distinct count: a standard error of 0.8 %."""
_COUNTS = ("messages", "bytes", "deliveries")


def from_rows(raw: DataFrame, run: str) -> dict[str, DataFrame]:
    """The tables made from raw rows that carry their `date` and `hour`."""
    made = {"traffic": traffic(raw), "parties": parties(raw), "latency": latency(raw)}
    return {
        name: frame.select(
            f.lit(run).alias("run"),
            _hour().alias("hour"),
            *(field.name for field in schema.ROLL_UP[name].fields[2:]),
        )
        for name, frame in made.items()
    }


def traffic(raw: DataFrame) -> DataFrame:
    """What went from where to where, and what became of it."""
    same = ("type", "component", "outcome", "effect", "rule", "code")
    heads = (
        raw.select(
            "date",
            "hour",
            addresses.head(f.col("sender")).alias("from_head"),
            addresses.head(f.col("to")).alias("to_head"),
            *same,
            "size",
            "listeners",
            "asserted",
        )
        .groupBy("date", "hour", "from_head", "to_head", *same)
        .agg(*_sums(), f.sum(f.col("asserted").cast("long")).alias("asserted"))
    )
    keys = ("from_scheme", "from_domain", "to_scheme", "to_domain", *same)
    return (
        heads.withColumns(
            {
                "from_scheme": addresses.scheme(f.col("from_head")),
                "from_domain": addresses.home_domain(f.col("from_head")),
                "to_scheme": addresses.scheme(f.col("to_head")),
                "to_domain": addresses.home_domain(f.col("to_head")),
            }
        )
        .groupBy("date", "hour", *keys)
        .agg(*(f.sum(count).alias(count) for count in (*_COUNTS, "asserted")))
    )


def parties(raw: DataFrame) -> DataFrame:
    """Who talked, who was reached, and which runtimes were there: one row for each of them."""
    runtime = f.coalesce(f.nullif(f.col("runtime"), f.lit("")), f.col("session"))
    speakers = (
        raw.select("date", "hour", runtime.alias("runtime"), "sender", "size", "listeners")
        .groupBy("date", "hour", "runtime", "sender")
        .agg(*_sums())
    )
    spoke = (
        speakers.select(
            "date",
            "hour",
            f.explode(
                f.array(
                    _party(schema.TALKER, f.col("sender")), _party(schema.RUNTIME, f.col("runtime"))
                )
            ).alias("party"),
            *_COUNTS,
        )
        .select("date", "hour", "party.role", "party.address", *_COUNTS)
        .groupBy("date", "hour", "role", "address")
        .agg(*(f.sum(count).alias(count) for count in _COUNTS))
    )
    reached = (
        raw.where(f.col("outcome").isin(*schema.REACHED))
        .groupBy("date", "hour", f.col("to").alias("address"))
        .agg(*_sums())
        .select("date", "hour", f.lit(schema.LISTENER).alias("role"), "address", *_COUNTS)
    )
    return spoke.unionByName(reached).where(f.col("address") != "")


def latency(raw: DataFrame) -> DataFrame:
    return (
        raw.where(f.col("outcome").isin(*schema.HANDED_OVER))
        .select(
            "date",
            "hour",
            "type",
            "component",
            histogram.bucket(f.col("latency_us")).alias("bucket"),
            "latency_us",
        )
        .groupBy("date", "hour", "type", "component", "bucket")
        .agg(f.count(f.lit(1)).alias("messages"), f.max("latency_us").alias("highest_us"))
    )


def distinct(parties: DataFrame) -> DataFrame:
    """Sketches of who was there, from the `parties` of a run: a row for each hour and role, in two
    parts, because the estimate of a sketch that was merged from others does not depend on the order
    of its input, so a re-run gives the same."""
    return (
        parties.withColumn("part", f.pmod(f.hash("address"), f.lit(2)))
        .groupBy("run", "hour", "role", "part")
        .agg(f.hll_sketch_agg("address", f.lit(SKETCH_SIZE)).alias("sketch"))
    )


def _party(role: str, address: Column) -> Column:
    return f.struct(f.lit(role).alias("role"), address.alias("address"))


def _sums() -> list[Column]:
    return [
        f.count(f.lit(1)).alias("messages"),
        f.sum("size").alias("bytes"),
        f.sum("listeners").alias("deliveries"),
    ]


def _hour() -> Column:
    return f.to_timestamp(f.col("date").cast("timestamp")) + f.make_dt_interval(hours=f.col("hour"))
