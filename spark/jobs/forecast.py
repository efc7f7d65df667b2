"""The growth of traffic: a straight line through the days, with its error, extrapolated.

Only whole days count, with all hours recorded, so that a gap is not taken for a quiet day. The line
is fitted by least squares; its error is that of a single future day, the weekly rhythm included, as
the range that contains 95 of 100 such days (Student's t). With fewer than LEAST_DAYS days there is
none.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

LEAST_DAYS = 7
AHEAD = (7, 30, 90)
"""Days after the period that is reported on."""
MEASURES = ("messages", "bytes", "busiest_hour")
_Z = 1.959964


def days(hours: DataFrame) -> DataFrame:
    """Whole days of (period, hour, messages, bytes): their sums, and the most of one hour."""
    return (
        hours.groupBy("period", f.date_trunc("day", "hour").alias("day"))
        .agg(
            f.sum("messages").alias("messages"),
            f.sum("bytes").alias("bytes"),
            f.max("messages").alias("busiest_hour"),
            f.count(f.lit(1)).alias("hours"),
        )
        .where(f.col("hours") == 24)
        .drop("hours")
    )


def forecast(days: DataFrame, last: Column, ahead: Sequence[int] = AHEAD) -> DataFrame:
    """What each measure will be, some days after the day `last`.

    Returns:
        Rows (period, measure, day, forecast, low, high, change_per_day, r2, days): `r2` is the
        share of the days' differences that the line explains, `days` how many it is made of.
    """
    pairs = ", ".join(f"'{name}', cast({name} as double)" for name in MEASURES)
    x = f.datediff("day", last).cast("double")
    points = days.select(
        "period",
        x.alias("x"),
        f.expr(f"stack({len(MEASURES)}, {pairs}) as (measure, y)"),
    )
    y, x = f.col("y"), f.col("x")
    fitted = points.groupBy("period", "measure").agg(
        f.count(f.lit(1)).alias("days"),
        f.regr_slope(y, x).alias("slope"),
        f.regr_intercept(y, x).alias("intercept"),
        f.regr_r2(y, x).alias("r2"),
        f.regr_sxx(y, x).alias("sxx"),
        f.regr_syy(y, x).alias("syy"),
        f.avg(x).alias("middle"),
    )
    then, many = f.col("ahead").cast("double"), f.col("days").cast("double")
    rest = f.greatest(f.col("syy") - f.pow("slope", f.lit(2)) * f.col("sxx"), f.lit(0.0))
    error = f.sqrt(
        rest / (many - 2) * (1 + 1 / many + f.pow(then - f.col("middle"), f.lit(2)) / f.col("sxx"))
    )
    value = f.col("intercept") + f.col("slope") * then
    away = _t(many - 2) * error
    return (
        fitted.where(f.col("days") >= LEAST_DAYS)
        .withColumn("ahead", f.explode(f.array(*(f.lit(number) for number in ahead))))
        .select(
            "period",
            "measure",
            f.date_format(f.date_add(f.to_date(last), f.col("ahead")), "yyyy-MM-dd").alias("day"),
            _whole(value).alias("forecast"),
            _whole(value - away).alias("low"),
            _whole(value + away).alias("high"),
            f.round("slope", 2).alias("change_per_day"),
            f.round("r2", 4).alias("r2"),
            "days",
        )
    )


def _whole(value: Column) -> Column:
    return f.greatest(f.round(value), f.lit(0.0)).cast("long")


def _t(freedom: Column) -> Column:
    """Student's t for 95 of 100, from the normal one (Cornish and Fisher); 0.2 % off at 5."""
    z = _Z
    return (
        f.lit(z)
        + f.lit((z**3 + z) / 4) / freedom
        + f.lit((5 * z**5 + 16 * z**3 + 3 * z) / 96) / f.pow(freedom, f.lit(2))
        + f.lit((3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384) / f.pow(freedom, f.lit(3))
    )
