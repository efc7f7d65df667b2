"""Latencies as a histogram that can be added.

Buckets grow by 4 %, so a percentile read from it is within 2 % of the true one, for an hour as for
a year.

Bucket b holds (GROWTH^(b-1), GROWTH^b] microseconds and is read as its geometric middle; the
highest latency is kept exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

GROWTH = 1.04
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)


def bucket(latency_us: Column) -> Column:
    """The number of the bucket a latency, in microseconds, falls into."""
    return f.ceil(f.ln(f.greatest(latency_us, f.lit(1)).cast("double")) / math.log(GROWTH)).cast(
        "int"
    )


def middle(bucket: Column) -> Column:
    """What a latency in this bucket is taken for, in microseconds."""
    return f.pow(f.lit(GROWTH), bucket.cast("double") - 0.5)


def percentiles(histogram: DataFrame, keys: Sequence[str]) -> DataFrame:
    """One row for each combination of `keys`: messages, p50 … p99.9 and the highest, in µs.

    The p-th percentile is the smallest value that at least p % of the messages do not exceed.
    """
    merged = histogram.groupBy(*keys, "bucket").agg(
        f.sum("messages").alias("messages"), f.max("highest_us").alias("highest_us")
    )
    within = Window.partitionBy(*keys)
    counted = merged.select(
        *keys,
        "messages",
        "highest_us",
        f.least(middle(f.col("bucket")), f.col("highest_us").cast("double")).alias("value"),
        f.sum("messages").over(within).alias("all"),
        f.sum("messages").over(within.orderBy("bucket")).alias("up_to"),
    )
    return counted.groupBy(*keys).agg(
        f.sum("messages").alias("messages"),
        *(
            f.round(
                f.min(f.when(f.col("up_to") * 100 >= f.col("all") * p, f.col("value"))), 1
            ).alias(name(p))
            for p in PERCENTILES
        ),
        f.max("highest_us").alias("highest_us"),
    )


def name(percentile: float) -> str:
    """The column of a percentile: p50, p99, p99_9."""
    return f"p{percentile:g}".replace(".", "_")
