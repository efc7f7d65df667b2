"""The reports on reserved bandwidth and on set-ups of P2P, beside an independent count."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from msgnode.core.record import ReservationEvent
from msgnode.traffic.files import RecordFiles
from msgnode.traffic.generate import Plan, hours, reservations, sessions
from spark import job_main, pages
from spark.jobs.periods import Kind
from tests.spark.conftest import DAY
from tests.spark.independent import Independent

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]
NEXT = DAY + timedelta(days=1)
PLAN = Plan(20_000, 2, 5, NEXT)
EVENTS = {str(event) for event in ReservationEvent}


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("reservations")
    for number, kind in enumerate((hours, sessions, reservations)):
        files = RecordFiles(f"{place}/raw", f"w{number}", max_bytes=1 << 40, min_free=0)
        for hour, table in kind(PLAN):
            files.write(int(hour.timestamp()), with_set_ups(table) if kind is hours else table)
    return place


def with_set_ups(table: pa.Table) -> pa.Table:
    """What is asked of P2P handlers and requesters is to set up a connection."""
    is_asked = pc.and_(
        pc.match_substring(pc.cast(table["to"], pa.string()), "/p2prequester/"),
        pc.equal(pc.cast(table["type"], pa.string()), "execute"),
    )
    types = pc.if_else(is_asked, "create", pc.cast(table["type"], pa.string()))
    place = table.column_names.index("type")
    return table.set_column(place, "type", pc.cast(types, table.schema.field("type").type))


@pytest.fixture(scope="module")
def truth(record: Path) -> Independent:
    return Independent(record, DAY, NEXT)


@pytest.fixture(scope="module")
def daily(spark: SparkSession, record: Path) -> dict[str, Any]:
    made = job_main.make(spark, Kind.DAILY, str(record), DAY, NEXT, "daily")
    found: dict[str, Any] = made["reports"][0]
    return found


@pytest.fixture(scope="module", params=[Kind.DAILY, Kind.HOURLY])
def report(
    request: pytest.FixtureRequest, spark: SparkSession, record: Path, daily: dict[str, Any]
) -> dict[str, Any]:
    """The report of the day; or of its 24 hours, added up."""
    if request.param is Kind.DAILY:
        return daily
    made = job_main.make(spark, Kind.HOURLY, str(record), DAY, NEXT, "hourly")
    tables: dict[str, list[dict[str, Any]]] = {}
    of_the_day = [each for each in made["reports"] if each["start"] >= DAY.isoformat()]
    assert len(of_the_day) == 24
    for each in of_the_day:
        for name, rows in each["tables"].items():
            tables.setdefault(name, []).extend(rows)
    return {"tables": tables}


def test_reservations_are_told_by_event_class_or_reason_and_code(
    report: dict[str, Any], truth: Independent
) -> None:
    found: dict[Any, list[int]] = {}
    for row in report["tables"]["reservations"]:
        sums = found.setdefault((row["event"], row["ending"], row["code"]), [0, 0, 0])
        sums[:] = sums[0] + row["times"], sums[1] + row["bytes"], max(sums[2], row["longest_s"])
    expected = truth.reservations()
    assert {key: tuple(sums) for key, sums in found.items()} == {
        key: row[:3] for key, row in expected.items()
    }
    assert {event for event, *_ in found} == EVENTS
    assert max(row[1] for row in expected.values()) > 2**31


def test_how_long_they_lasted(daily: dict[str, Any], truth: Independent) -> None:
    expected = truth.reservations()
    for row in daily["tables"]["reservations"]:
        if row["event"] == "reservation-ended":
            median = expected[row["event"], row["ending"], row["code"]][3]
            assert row["p50_s"] == pytest.approx(median, rel=0.021)


def test_reservations_by_hour(report: dict[str, Any], truth: Independent) -> None:
    found = {
        (row["hour"][:13], name): row[name]
        for row in report["tables"]["reservation_hours"]
        for name in ("reserved", "refused", "ended", "bytes")
        if row[name]
    }
    assert found == truth.reservation_hours()


def test_sessions_are_told_without_them(report: dict[str, Any], truth: Independent) -> None:
    events = {row["event"] for row in report["tables"]["sessions"]}
    assert events == {"opened", "resumed", "lost", "ended"}
    hours = {
        (row["hour"][:13], event): row[event]
        for row in report["tables"]["session_hours"]
        for event in ("opened", "resumed", "lost", "ended")
        if row[event]
    }
    assert hours == truth.session_hours()


def test_set_ups_of_p2p_between_domains(report: dict[str, Any], truth: Independent) -> None:
    names = ("set_ups", "failed", "signalling", "messages")
    rows = report["tables"]["p2p"]
    if "kind" not in report:  # hours have only those messages that were beside signalling
        sums: dict[tuple[str, str], int] = {}
        for row in rows:
            key = (row["from_domain"], row["to_domain"])
            sums[key] = sums.get(key, 0) + row["signalling"]
        assert sums == {key: row[2] for key, row in truth.p2p().items()}
        return
    found = {
        (row["from_domain"], row["to_domain"]): (*(row[n] for n in names), row["share"])
        for row in rows
    }
    assert found == truth.p2p()
    assert sum(row[0] for row in found.values()) > 0


def test_the_page_draws_them(daily: dict[str, Any]) -> None:
    shown = pages.context(daily)
    drawn = shown["chart"]
    assert sum(drawn["reservations"]["reserved"]) > sum(drawn["reservations"]["refused"]) > 0
    assert sum(drawn["relayed"]) > 0
    assert drawn["p2p"]["labels"]
    assert {"reservations", "reservation_hours", "p2p"} <= {t["name"] for t in shown["tables"]}
