"""What an hour is expected to carry, and which hours are out of the ordinary.

The expectation of an hour is the median of the same hour of day in the days before; its spread is
the median of the distances from it (MAD), which a few odd days do not move. An hour is out of the
ordinary if it is further away than LIMIT spreads, and than a share of the expectation, and than a
handful of messages; with fewer than LEAST_DAYS days before it nothing is said.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

LIMIT = 5.0
TO_SIGMA = 1.4826
LEAST_SHARE = 0.3
LEAST_MESSAGES = 50
LEAST_DAYS = 4
MEASURES = ("messages", "failed")


def expectation(history: DataFrame) -> DataFrame:
    """(hour, messages, failed) of the days before → (hour_of_day, days, and for each measure its
    median and spread)."""
    by_time = history.withColumn("hour_of_day", f.hour("hour"))
    medians = by_time.groupBy("hour_of_day").agg(
        f.count(f.lit(1)).alias("days"),
        *(f.percentile(m, f.lit(0.5)).alias(f"{m}_expected") for m in MEASURES),
    )
    distances = by_time.join(medians, on="hour_of_day")
    return distances.groupBy("hour_of_day", "days", *(f"{m}_expected" for m in MEASURES)).agg(
        *(
            f.percentile(f.abs(f.col(m) - f.col(f"{m}_expected")), f.lit(0.5)).alias(f"{m}_spread")
            for m in MEASURES
        )
    )


def judged(hours: DataFrame, history: DataFrame) -> DataFrame:
    """`hours` with their expectation and, for each measure, `<measure>_odd`: high, low or ""."""
    joined = (
        hours.withColumn("hour_of_day", f.hour("hour"))
        .join(f.broadcast(expectation(history)), on="hour_of_day", how="left")
        .drop("hour_of_day")
    )
    for measure in MEASURES:
        expected = f.col(f"{measure}_expected")
        away = f.col(measure) - expected
        far = f.greatest(
            f.col(f"{measure}_spread") * (LIMIT * TO_SIGMA),
            expected * LEAST_SHARE,
            f.lit(LEAST_MESSAGES),
        )
        joined = joined.withColumn(
            f"{measure}_odd",
            f.when((f.col("days") < LEAST_DAYS) | f.col("days").isNull(), "")
            .when(away > far, "high")
            .when(-away > far, "low")
            .otherwise(""),
        )
    return joined
