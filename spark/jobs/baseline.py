"""The expected traffic of an hour, and the detection of unusual hours.

An hour's expectation is the median of the same hour of the day in the days before; its spread is
the median absolute deviation (MAD), which a few odd days do not change. An hour is unusual if it
deviates by more than LIMIT spreads, and by more than a share of the expectation, and by more than a
handful of messages; with fewer than LEAST_DAYS days before it nothing is concluded.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

LIMIT = 5.0
TO_SIGMA = 1.4826
LEAST_SHARE = 0.3
LEAST_MESSAGES = 50
LEAST_DAYS = 4
MEASURES = ("messages", "failed")


def judged(hours: DataFrame) -> DataFrame:
    """Mark the hours that are out of the ordinary.

    Args:
        hours: columns hour, the measures (messages, failed, …), and past: whether it is only there
            to compare with.

    Returns:
        The hours that are not past, with `days` (how many they were compared with), for each
        measure what was expected and its spread, and `<measure>_odd`: high, low or "".
    """
    at_that_time = Window.partitionBy(f.hour("hour"))
    is_past = f.col("past")
    hours = hours.withColumn("days", f.count(f.when(is_past, 1)).over(at_that_time))
    for measure in MEASURES:
        then = f.collect_list(f.when(is_past, f.col(measure))).over(at_that_time)
        hours = hours.withColumn(f"{measure}_then", then)
    hours = hours.where(~is_past).drop("past")
    for measure in MEASURES:
        then, expected = f.col(f"{measure}_then"), f.col(f"{measure}_expected")
        distances = f.transform(then, partial(_distance, expected))
        away = f.col(measure) - expected
        far = f.greatest(
            f.col(f"{measure}_spread") * (LIMIT * TO_SIGMA),
            expected * LEAST_SHARE,
            f.lit(LEAST_MESSAGES),
        )
        odd = (
            f.when(f.col("days") < LEAST_DAYS, "")
            .when(away > far, "high")
            .when(-away > far, "low")
            .otherwise("")
        )
        hours = (
            hours.withColumn(f"{measure}_expected", _median(then))
            .withColumn(f"{measure}_spread", _median(distances))
            .withColumn(f"{measure}_odd", odd)
            .drop(f"{measure}_then")
        )
    return hours


def _distance(of: Column, number: Column) -> Column:
    return f.abs(number - of)


def _median(numbers: Column) -> Column:
    """Of an array; null if it is empty."""
    ordered, many = f.array_sort(numbers), f.size(numbers)
    lower = f.get(ordered, f.floor((many - 1) / 2).cast("int"))
    return (lower + f.get(ordered, f.floor(many / 2).cast("int"))) / 2
