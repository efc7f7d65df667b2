"""The parts of the jobs: addresses, histogram, expectation, schema, ledger and compaction."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from msgnode.core import addresses as of_the_node
from msgnode.traffic.columns import OF_SESSIONS, STORED
from spark.jobs import figures, histogram, hourly, schema
from spark.jobs.counting import _head  # what executors cut addresses to
from tests.spark.conftest import DAY

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]
ARROW = {
    pa.timestamp("us", tz="UTC"): t.TimestampType(),
    pa.string(): t.StringType(),
    pa.int32(): t.IntegerType(),
    pa.bool_(): t.BooleanType(),
}


def test_the_recorder_and_spark_agree_on_the_columns() -> None:
    written = [(field.name, ARROW[field.type]) for field in (*STORED, *OF_SESSIONS)]
    assert written == [(field.name, field.dataType) for field in schema.RAW]


@pytest.mark.long
def test_schemes_and_domains_are_those_of_the_node(spark: SparkSession) -> None:
    texts = [
        "hyperty://example.com/7e2", "HYPERTY://Example.COM:8443/x/y", "mn:/session", "user:bob",
        "runtime://msg-node.example.org", "domain://registry.example.net/hyperty", "no scheme",
        "a/b:c", ":x", "", "comm:///x", "comm://", "qos.example://qos.d/", "global:registry/x",
        "domain://idm.catalogue.d/x", "hyperty://d/a:b//c", "x:y://z/w",
    ]  # fmt: skip
    head = hourly.head(f.col("text"))
    rows = spark.createDataFrame([(text,) for text in texts], "text string").select(
        "text", hourly.scheme(head).alias("scheme"), hourly.home_domain(head).alias("home")
    )
    for row in rows.collect():
        parsed = of_the_node.parse(row.text)
        assert (row.text, row.scheme, row.home) == (row.text, parsed.scheme, parsed.home)


@pytest.mark.long
def test_percentiles_of_a_histogram_are_within_two_percent(spark: SparkSession) -> None:
    values = [1, 1, 2, 3] + [round(1.013**n) for n in range(400, 1600)]
    buckets = (
        spark.createDataFrame([(v,) for v in values], "latency_us int")
        .groupBy(f.lit("a").alias("k"), histogram.bucket(f.col("latency_us")).alias("bucket"))
        .agg(f.count("*").alias("messages"), f.max("latency_us").alias("highest_us"))
    )
    (row,) = histogram.percentiles(buckets, ["k"]).collect()
    ordered = sorted(values)
    for p in histogram.PERCENTILES:
        exact = ordered[-(-len(ordered) * round(p * 10) // 1000) - 1]
        assert row[histogram.name(p)] == pytest.approx(exact, rel=0.02)
    assert (row.messages, row.highest_us) == (len(values), ordered[-1])


@pytest.mark.long
def test_an_hour_unlike_the_days_before_is_found(spark: SparkSession) -> None:
    shape = "hour timestamp, messages long, failed long, past boolean"
    history = [
        (DAY - timedelta(days=day) + timedelta(hours=hour), 1000 + 10 * (day % 3), 5, True)
        for day in range(1, 8)
        for hour in (9, 10, 11)
    ]
    today = [(9, 1010, 4), (10, 300, 5), (11, 1005, 900), (12, 50_000, 0)]
    hours = [(DAY + timedelta(hours=h), m, x, False) for h, m, x in today]
    judged = figures.judged(spark.createDataFrame(history + hours, shape))
    found = {row.hour.hour: (row.messages_odd, row.failed_odd) for row in judged.collect()}
    assert found == {9: ("", ""), 10: ("low", ""), 11: ("", "high"), 12: ("", "")}


@pytest.mark.long
def test_what_an_address_is_of(spark: SparkSession) -> None:
    expected = {
        "domain://qos.Example.com": ("qos", ""),
        "domain://registry.d/hyperty": ("registry", ""),
        "runtime://d/1/p2phandler/2": ("p2p", ""),
        "hyperty-runtime://d/p2prequester/2": ("p2p", ""),
        "runtime://d/1/x/p2phandler/2": ("", ""),
        "hyperty://d/p2phandler": ("", ""),
        "sip:bob@PBX.legacy.example": ("", "sip.legacy.example"),
        "sip://bob@pbx.legacy.example:5060/x": ("", "sip.legacy.example"),
        "tel:+123@a.b.c;x=1": ("", "tel.b.c"),
        "sip:bob@localhost": ("", ""),
        "hyperty://bob@d.e/1": ("", ""),
        "user://idp.example/bob@mail.example": ("", ""),
        "sip:nobody": ("", ""),
        "": ("", ""),
    }
    heads = _head(pa.array(list(expected))).to_pylist()
    rows = spark.createDataFrame(
        list(zip(expected, heads, strict=True)), "text string, head string"
    ).select("text", hourly.service(f.col("head")), hourly.network(f.col("head")))
    assert {row[0]: (row[1], row[2]) for row in rows.collect()} == expected
