"""The hourly roll-up: raw rows in, four small tables out, each row of the record read twice at most.

Raw rows are first counted by everything that tells them apart but time, size and latency ("flows":
who to whom, how, with what outcome). Flows are few, so what follows from them costs little: the
traffic by domains, the parties, and sketches of the distinct ones. Latencies are a second pass over
three columns.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark.jobs import addresses, histogram, schema

_FLOW = (
    "runtime", "sender", "to", "type", "component", "outcome", "effect", "rule", "code",
)  # fmt: skip
_COUNTS = ("messages", "bytes", "deliveries", "asserted")
SKETCH_SIZE = 14
"""log2 of the registers of a distinct count: a standard error of 0.8 %."""


def roll_up(raw: DataFrame, run: str) -> dict[str, DataFrame]:
    """The tables of `schema.ROLL_UP` for all hours in `raw`. The caller may cache `flows` first."""
    return tables(flows(raw), raw, run)


def flows(raw: DataFrame) -> DataFrame:
    return (
        raw.select(
            "date",
            "hour",
            f.coalesce(f.nullif(f.col("runtime"), f.lit("")), f.col("session")).alias("runtime"),
            *_FLOW[1:],
            "size",
            "listeners",
            "asserted",
        )
        .groupBy("date", "hour", *_FLOW)
        .agg(
            f.count(f.lit(1)).alias("messages"),
            f.sum("size").alias("bytes"),
            f.sum("listeners").alias("deliveries"),
            f.sum(f.col("asserted").cast("long")).alias("asserted"),
        )
    )


def tables(flows: DataFrame, raw: DataFrame, run: str) -> dict[str, DataFrame]:
    who = parties(flows)
    made = {
        "traffic": traffic(flows),
        "parties": who,
        "latency": latency(raw),
        "distinct": distinct(who),
    }
    return {
        name: frame.select(
            f.lit(run).alias("run"),
            _hour().alias("hour"),
            *(field.name for field in schema.ROLL_UP[name].fields[2:]),
        )
        for name, frame in made.items()
    }


def traffic(flows: DataFrame) -> DataFrame:
    keys = [field.name for field in schema.TRAFFIC.fields[2:-4]]
    return (
        flows.withColumns(
            {
                "from_scheme": addresses.scheme(f.col("sender")),
                "from_domain": addresses.home_domain(f.col("sender")),
                "to_scheme": addresses.scheme(f.col("to")),
                "to_domain": addresses.home_domain(f.col("to")),
            }
        )
        .groupBy("date", "hour", *keys)
        .agg(*(f.sum(count).alias(count) for count in _COUNTS))
    )


def parties(flows: DataFrame) -> DataFrame:
    """Who talked, who was reached, and which runtimes were there: one row for each of them."""
    roles = f.array(
        _party(schema.TALKER, f.col("sender")),
        _party(schema.LISTENER, f.when(f.col("outcome").isin(*schema.REACHED), f.col("to"))),
        _party(schema.RUNTIME, f.col("runtime")),
    )
    return (
        flows.select("date", "hour", f.explode(roles).alias("party"), *_COUNTS[:3])
        .select("date", "hour", "party.role", "party.address", *_COUNTS[:3])
        .where((f.col("address").isNotNull()) & (f.col("address") != ""))
        .groupBy("date", "hour", "role", "address")
        .agg(*(f.sum(count).alias(count) for count in _COUNTS[:3]))
    )


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
    """A sketch of the addresses of a role, in two parts: a sketch that was merged from others gives
    an estimate that does not depend on the order of its input, so a re-run gives the same."""
    return (
        parties.withColumn("part", f.pmod(f.hash("address"), f.lit(2)))
        .groupBy("date", "hour", "role", "part")
        .agg(f.hll_sketch_agg("address", f.lit(SKETCH_SIZE)).alias("sketch"))
    )


def _party(role: str, address: Column) -> Column:
    return f.struct(f.lit(role).alias("role"), address.alias("address"))


def _hour() -> Column:
    return f.to_timestamp(f.col("date").cast("timestamp")) + f.make_dt_interval(
        hours=f.col("hour")
    )
