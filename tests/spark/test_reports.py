"""Reports say what the record says: checked against an independent computation.

One record of two days is read by one daily and one hourly run. It has messages, sessions and
reservations. An hour of it has sessions alone, and another so many files that they are compacted;
the hourly run counts all hours again, then also the compacted one.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
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
from spark.jobs import compaction
from spark.jobs.periods import Kind
from tests.length import length
from tests.spark.conftest import DAY
from tests.spark.independent import Independent

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]
REACHED = "outcome in ('delivered', 'answered', 'queued')"
HOUR = "strftime(\"at\", '%Y-%m-%dT%H:00:00+00:00')"
NEXT = DAY + timedelta(days=1)
HOME = "example.com"
NOTHING = {"dropped": 0, "refused": 0}
COMPACTED, OF_SESSIONS_ALONE = DAY + timedelta(hours=12), DAY + timedelta(hours=3)
SESSION_EVENTS = ("opened", "resumed", "lost", "ended")


def write(record: Path, name: str, hour: datetime, table: pa.Table) -> None:
    files = RecordFiles(f"{record}/raw", name, max_bytes=1 << 40, min_free=0)
    files.write(int(hour.timestamp()), table)


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
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record of all tests that change nothing in it."""
    place = tmp_path_factory.mktemp("whole")
    plan = Plan(length(40_000, full=1_000_000), 2, 7, NEXT)
    for hour, table in hours(plan):
        if hour != OF_SESSIONS_ALONE:
            write(place, "messages", hour, with_set_ups(table))
    for name, kind in (("sessions", sessions), ("reservations", reservations)):
        for hour, table in kind(plan):
            write(place, name, hour, table)
    for number in range(compaction.FILES_WORTH_IT):
        few = dict(sessions(Plan(2_000, 2, number, NEXT)))
        write(place, f"x{number}", COMPACTED, few[COMPACTED])
    return place


@pytest.fixture(scope="module")
def daily(spark: SparkSession, whole: Path) -> dict[str, Any]:
    made = job_main.make(spark, Kind.DAILY, str(whole), DAY, NEXT, "daily", home=HOME)
    folder = whole / "raw" / f"date={DAY:%Y-%m-%d}" / f"hour={COMPACTED:%H}"
    assert len(list(folder.glob("*.parquet"))) == 1
    (report,) = made["reports"]
    found: dict[str, Any] = report
    return found


@pytest.fixture(scope="module")
def by_hours(spark: SparkSession, whole: Path, daily: dict[str, Any]) -> list[dict[str, Any]]:
    """The reports of the day's hours, counted again."""
    place = whole.as_uri()  # file:///…
    made = job_main.make(spark, Kind.HOURLY, place, DAY, NEXT, "hourly", again=True, home=HOME)
    return [each for each in made["reports"] if each["start"] >= DAY.isoformat()]


@pytest.fixture(scope="module", params=[Kind.DAILY, Kind.HOURLY])
def report(
    request: pytest.FixtureRequest, daily: dict[str, Any], by_hours: list[dict[str, Any]]
) -> dict[str, Any]:
    """The report of the day; or those of its 24 hours, added up."""
    if request.param is Kind.DAILY:
        return daily
    assert len(by_hours) == 24
    tables: dict[str, list[dict[str, Any]]] = {}
    for each in by_hours:
        for name, rows in each["tables"].items():
            tables.setdefault(name, []).extend(rows)
    return {"tables": tables}


@pytest.fixture(scope="module")
def truth(whole: Path, by_hours: list[dict[str, Any]]) -> Independent:
    return Independent(whole, DAY, NEXT)


def by(report: dict[str, Any], table: str, *keys: str) -> dict[tuple[Any, ...], int]:
    return {tuple(row[key] for key in keys): row["messages"] for row in report["tables"][table]}


# --- messages -------------------------------------------------------------------------------------
def test_a_report_equals_an_independent_computation(
    daily: dict[str, Any], truth: Independent, whole: Path
) -> None:
    before = Independent(whole, DAY - timedelta(days=1), DAY)
    assert daily["totals"] == NOTHING | truth.totals()
    assert daily["previous"] == NOTHING | before.totals()
    assert by(daily, "types", "type") == truth.counts("type")
    assert by(daily, "components", "component") == truth.counts("component")
    assert by(daily, "pairs", "from_domain", "to_domain") == truth.counts(
        "from_domain", "to_domain"
    )
    assert by(daily, "causes", "outcome", "code", "effect", "rule") == truth.causes()
    talkers = sorted(truth.counts("sender").items(), key=lambda one: (-one[1], one[0]))
    assert list(by(daily, "talkers", "address").items()) == talkers[:100]
    assert daily["rows_of"]["talkers"] == len(talkers)
    for share, name in ((0.5, "p50"), (0.9, "p90"), (0.95, "p95"), (0.99, "p99")):
        assert daily["latency"][name] == pytest.approx(truth.percentile(share), rel=0.02)
    assert daily["latency"]["highest_us"] == truth.highest()
    distinct = {
        "talker": truth.distinct("sender"),
        "listener": truth.distinct('"to"', REACHED),
        "runtime": truth.distinct("who"),
    }
    assert daily["distinct"].keys() == distinct.keys()
    for role, addresses in distinct.items():
        assert daily["distinct"][role] == pytest.approx(len(addresses), rel=0.02)
    now, then = truth.distinct("who"), before.distinct("who")
    for table, expected in (("new_runtimes", now - then), ("silent_runtimes", then - now)):
        found = {row["address"] for row in daily["tables"][table]}
        assert found <= expected
        assert len(found) == min(len(expected), 200)
        assert daily["rows_of"][table] == len(expected)
        assert expected


def test_each_hour_has_its_report(by_hours: list[dict[str, Any]], truth: Independent) -> None:
    found = {(each["start"],): each["totals"].get("messages", 0) for each in by_hours}
    assert found == {(OF_SESSIONS_ALONE.isoformat(),): 0} | truth.counts(HOUR)
    assert all(each["hours_of_period"] == 1 for each in by_hours)


def test_an_hour_with_sessions_alone_is_a_recorded_hour(daily: dict[str, Any]) -> None:
    assert len(daily["hours_recorded"]) == 24


def test_peer_domains(daily: dict[str, Any], truth: Independent) -> None:
    found = {
        row["name"]: tuple(
            row[f"{side}_{what}"]
            for side in ("to", "from")
            for what in ("messages", "bytes", "failed")
        )
        for row in daily["tables"]["peers"]
    }
    assert found == truth.peers(HOME)
    assert HOME not in found
    assert len(found) >= 5


def test_legacy_networks(daily: dict[str, Any], truth: Independent) -> None:
    found = {row["name"]: row["to_messages"] for row in daily["tables"]["networks"]}
    assert found == truth.networks()
    assert set(found) == {"sip.telephone.example", "sip.office.example"}


def test_services_with_quality_of_service_and_signalling(
    daily: dict[str, Any], truth: Independent
) -> None:
    found = by(daily, "services", "to_service", "to_domain")
    assert found == truth.services()
    assert {service for service, _ in found} == {"qos", "p2p"}


def test_decisions_of_policies_by_hour_and_by_rule(
    daily: dict[str, Any], truth: Independent
) -> None:
    assert by(daily, "rules", "effect", "rule") == truth.counts("effect", "rule")
    columns = {"permit": "permitted", "deny": "denied", "notApplicable": "not_applicable"}
    found = {
        (row["hour"][11:13], effect): row[column]
        for row in daily["tables"]["hours"]
        for effect, column in columns.items()
        if row[column]
    }
    assert found == truth.counts("strftime(\"at\", '%H')", "effect")


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


# --- sessions and reservations --------------------------------------------------------------------
def test_sessions_are_told_by_event_ending_and_code(
    daily: dict[str, Any], truth: Independent
) -> None:
    found = {(row["event"], row["ending"], row["code"]): row for row in daily["tables"]["sessions"]}
    expected = truth.sessions()
    assert found.keys() == expected.keys()
    assert {event for event, *_ in found} == set(SESSION_EVENTS)
    for key, (steps, resumptions, longest, median, most) in expected.items():
        row = found[key]
        assert (row["sessions"], row["resumptions"], row["longest_s"]) == (
            steps,
            resumptions,
            longest,
        )
        if key[0] in ("lost", "ended"):
            assert row["p50_s"] == pytest.approx(median, rel=0.021)
            assert row["p99_s"] == pytest.approx(most, rel=0.021)


def test_sessions_by_hour(report: dict[str, Any], truth: Independent) -> None:
    assert {row["event"] for row in report["tables"]["sessions"]} == set(SESSION_EVENTS)
    found = {
        (row["hour"][:13], event): row[event]
        for row in report["tables"]["session_hours"]
        for event in SESSION_EVENTS
        if row[event]
    }
    assert found == truth.session_hours()


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
    assert {event for event, *_ in found} == {str(event) for event in ReservationEvent}
    assert max(row[1] for row in expected.values()) > 2**31


def test_how_long_reservations_lasted(daily: dict[str, Any], truth: Independent) -> None:
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


def test_rows_are_messages_and_steps(daily: dict[str, Any], truth: Independent) -> None:
    steps = sum(row["sessions"] for row in daily["tables"]["sessions"])
    reserved = sum(row["times"] for row in daily["tables"]["reservations"])
    assert daily["rows"] == daily["totals"]["messages"] + steps + reserved


def test_the_page_draws_them(daily: dict[str, Any]) -> None:
    shown = pages.context(daily)
    drawn = shown["chart"]
    assert len(drawn["peers"]["labels"]) == len(drawn["peers"]["to"]) >= 5
    assert drawn["effects"]["denied"][12] > 0
    assert sum(drawn["sessions"]["opened"]) > 0
    assert sum(drawn["reservations"]["reserved"]) > sum(drawn["reservations"]["refused"]) > 0
    assert sum(drawn["relayed"]) > 0
    assert drawn["p2p"]["labels"]
    assert {table["name"] for table in shown["tables"]} >= {
        "peers", "networks", "services", "rules", "days", "reservations", "reservation_hours",
        "p2p",
    }  # fmt: skip


# --- records of their own -------------------------------------------------------------------------
def fill(record: Path, rows: int, days: int, seed: int = 7, name: str = "w") -> None:
    for hour, table in hours(Plan(rows, days, seed, NEXT)):
        write(record, name, hour, table)


def test_a_week_is_made_of_its_days_and_a_late_hour_makes_its_day_again(
    spark: SparkSession, record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monday = DAY - timedelta(days=DAY.weekday())
    whole = (monday, monday + timedelta(days=7))

    def week(run: str) -> dict[str, Any]:
        (report,) = job_main.make(spark, Kind.WEEKLY, str(record), *whole, run)["reports"]
        return dict(report)

    def days_made_by() -> dict[str, str]:
        path = record / "roll-up" / "days" / f"{DAY:%Y-%m}.json"
        return {day: entry["run"] for day, entry in json.loads(path.read_text()).items()}

    fill(record, 6_000, days=6)
    with monkeypatch.context() as patch:
        patch.setattr("spark.job_main.figures.of_period", lambda *_: {})  # are looked at below
        week("a")
    assert set(days_made_by().values()) == {"a-days-0"}
    fill(record, 300, days=1, seed=8, name="late")
    report, truth = week("late"), Independent(record, *whole)
    assert report["totals"] == NOTHING | truth.totals()
    assert by(report, "types", "type") == truth.counts("type")
    assert len(report["tables"]["hours"]) == len(truth.counts(HOUR))
    talkers = sorted(truth.counts("sender").items(), key=lambda one: (-one[1], one[0]))
    assert list(by(report, "talkers", "address").items()) == talkers[:100]
    assert report["latency"]["p99"] == pytest.approx(truth.percentile(0.99), rel=0.02)
    assert report["distinct"]["talker"] == pytest.approx(len(talkers), rel=0.02)
    made_by = days_made_by()
    assert made_by.pop(f"{DAY:%d}") == "late-days-0"
    assert set(made_by.values()) == {"a-days-0"}


def test_a_month_that_is_partly_recorded_is_told_as_such(spark: SparkSession, record: Path) -> None:
    month = (DAY.replace(day=1), (DAY + timedelta(days=31)).replace(day=1))
    october = (month[0] - timedelta(days=31), month[0])
    fill(record, 2_000, days=DAY.day + 2)  # the last two days of October, November up to DAY
    made = job_main.make(spark, Kind.MONTHLY, str(record), *month, "a")
    (report,) = made["reports"]
    truth, before = Independent(record, *month), Independent(record, *october)
    assert report["totals"] == {"dropped": 0, "refused": 0} | truth.totals()
    assert report["previous"] == {"dropped": 0, "refused": 0} | before.totals()
    assert by(report, "types", "type") == truth.counts("type")
    by_hour = {
        (hour.replace("Z", "+00:00"),): n for (hour,), n in by(report, "hours", "hour").items()
    }
    assert by_hour == truth.counts(HOUR)
    talkers = sorted(truth.counts("sender").items(), key=lambda one: (-one[1], one[0]))
    assert list(by(report, "talkers", "address").items()) == talkers[:100]
    assert report["latency"]["p99"] == pytest.approx(truth.percentile(0.99), rel=0.02)
    for role, column in (("talker", "sender"), ("runtime", "who")):
        assert report["distinct"][role] == pytest.approx(len(truth.distinct(column)), rel=0.02)

    assert report["hours_of_period"] == 30 * 24
    assert len(report["hours_recorded"]) == len(truth.counts(HOUR)) <= DAY.day * 24
    assert report["previous_hours"] == len(before.counts(HOUR)) <= 2 * 24
    missing = pages.missing_hours(report, now=month[1])
    assert len(missing) + len(report["hours_recorded"]) == 30 * 24
    assert set(missing) >= {NEXT + timedelta(hours=n) for n in range(10 * 24)}  # to its end
    compared = pages.context(report)["compared"]
    assert f"of which {report['previous_hours']} hours are recorded" in compared


def test_a_period_without_rows_is_said_to_be_empty(spark: SparkSession, record: Path) -> None:
    (report,) = job_main.make(spark, Kind.DAILY, str(record), DAY, NEXT, "a")["reports"]
    assert report["hours_recorded"] == []
    assert report["totals"] == {}
    assert report["tables"]["pairs"] == []
