"""Reports over HTTP: the page, the last 24 hours, the REST interface and the downloads."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from msgnode.celery import app
from spark import api, pages
from spark.models import Report, ReportRun

pytestmark = pytest.mark.django_db
START = datetime(2026, 11, 20, tzinfo=UTC)


def figures(start: datetime = START, hours: int = 24, kind: str = "daily") -> dict[str, Any]:
    """A report whose second hour has no rows."""
    each = [start + timedelta(hours=n) for n in range(hours) if n != 1]
    counts = {"messages": 10, "bytes": 100, "deliveries": 8, "asserted": 1}
    outcomes = {"delivered": 8, "answered": 0, "queued": 0, "undeliverable": 1, "blocked": 1}
    row = counts | outcomes | {"refused": 0, "dropped": 0}
    by_hour = [{"hour": hour.strftime("%Y-%m-%dT%H:%M:%SZ"), **row, "failed": 2} for hour in each]
    return {
        "kind": kind, "start": start.isoformat(),
        "end": (start + timedelta(hours=hours)).isoformat(), "hours_of_period": hours,
        "hours_recorded": [hour.isoformat() for hour in each], "rows": 10 * len(each),
        "totals": {name: value * len(each) for name, value in row.items()},
        "distinct": {"talker": 3.0}, "latency": {"p50": 40.0, "p99": 90.0},
        "previous": {}, "previous_hours": 0, "change": {}, "anomalies": [],
        "tables": {
            "hours": by_hour, "latency_hours": [],
            "pairs": [{"from_domain": "<b>x</b>", "to_domain": "=cmd()", **row}],
            "types": [{"type": "message", **row}], "components": [{"component": "", **row}],
        },
    }  # fmt: skip


def report(start: datetime = START, hours: int = 24, kind: str = "daily") -> Report:
    return Report.objects.create(
        kind=kind, start=start, end=start + timedelta(hours=hours), rows=230, hours_recorded=23,
        hours_of_period=24, figures=figures(start, hours, kind),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def broker() -> Iterator[None]:
    """Tasks go to the file-system broker, where nobody reads them."""
    app.conf.task_always_eager = False
    yield
    app.conf.task_always_eager = True


def test_the_page_says_what_is_missing_and_trusts_no_address(operator: Client) -> None:
    page = operator.get(f"/admin/spark/report/{report().pk}/change/")
    text = page.content.decode()
    assert page.status_code == 200
    assert "1 hours have no rows" in text
    assert "11-20 01:00–02:00" in text
    assert "nothing recorded of the period before" in text
    assert "<b>x</b>" not in text
    assert "&lt;b&gt;x&lt;/b&gt;" in text


def test_the_list_and_rest_say_how_many_hours_are_incomplete(operator: Client) -> None:
    made = report()
    made.hours_incomplete = 2
    made.save()
    assert "23 of 24, 2 incomplete" in operator.get("/admin/spark/report/").content.decode()
    (line,) = operator.get("/api/v1/reports/").json()["results"]
    assert line["hours_incomplete"] == 2


def test_the_page_says_which_hours_are_incomplete_and_of_which_files(operator: Client) -> None:
    made = report()
    hour = (START + timedelta(hours=3)).isoformat()
    made.figures["hours_incomplete"] = [hour]
    row = {"hour": hour, "file": "w-1.parquet", "fault": "<i>no footer</i>"}
    made.figures["tables"]["damaged_files"] = [row]
    made.save()
    text = operator.get(f"/admin/spark/report/{made.pk}/change/").content.decode()
    assert "1 hour incomplete" in text
    assert "11-20 03:00–04:00" in text
    assert "w-1.parquet" in text
    assert "&lt;i&gt;no footer" in text
    answer = operator.get(f"/api/v1/reports/{made.pk}/damaged_files.csv/")
    assert b"w-1.parquet" in answer.content


def test_an_hour_without_rows_is_a_gap_in_the_chart_and_not_a_zero() -> None:
    drawn = pages.chart(figures())
    assert drawn["hours"][:3] == ["11-20 00:00", "11-20 01:00", "11-20 02:00"]
    assert drawn["outcomes"]["delivered"][:3] == [8, None, 8]


def test_hours_to_come_are_not_missing() -> None:
    now = START + timedelta(hours=1, minutes=30)
    assert pages.missing_hours(figures(), now) == []
    assert pages.missing_hours(figures(), now + timedelta(hours=1)) == [START + timedelta(hours=1)]


def test_the_last_24_hours_add_up_the_hours() -> None:
    for number in (1, 2, 30):
        report(START - timedelta(hours=number), 1, "hourly")
    whole = pages.last_day(START + timedelta(minutes=20))
    assert (whole["rows"], whole["totals"]["messages"], len(whole["hours_recorded"])) == (20, 20, 2)
    assert whole["tables"]["types"][0]["messages"] == 20
    assert len(pages.missing_hours(whole, START)) == 21  # the running hour is not over


@pytest.fixture
def record(tmp_path: Path, settings: Any) -> Path:
    """An empty record."""
    settings.RECORD = settings.RECORD | {"URL": str(tmp_path)}
    return tmp_path / "raw"


def recorded(record: Path, hour: datetime) -> None:
    folder = record / f"date={hour:%Y-%m-%d}" / f"hour={hour:%H}"
    folder.mkdir(parents=True)
    (folder / "w-1.parquet").write_bytes(b"rows")
    (folder / "_w-2.parquet.tmp").write_bytes(b"unfinished")


def test_the_last_day_says_what_is_not_rolled_up_and_offers_to_do_it(
    operator: Client, record: Path
) -> None:
    now = timezone.now()
    for age in (0, 2, 30):
        recorded(record, now - timedelta(hours=age))
    page = operator.get("/admin/spark/report/last-day/").content.decode()
    assert "2 hours with rows not in these figures yet" in page
    assert "There are no rows" not in page
    assert "Roll up now" in page
    operator.post("/admin/spark/report/last-day/roll-up/")
    run = ReportRun.objects.get()
    assert run.end > now  # with the running hour
    assert run.start <= now - timedelta(hours=22)
    page = operator.get("/admin/spark/report/last-day/").content.decode()
    assert "A run is under way" in page
    assert "Roll up now" not in page


def test_an_hour_with_a_newer_report_waits_for_nothing(operator: Client, record: Path) -> None:
    hour = (timezone.now() - timedelta(hours=3)).replace(minute=0, second=0, microsecond=0)
    recorded(record, hour)
    made = report(hour, 1, "hourly")
    assert (
        "not in these figures" not in operator.get("/admin/spark/report/last-day/").content.decode()
    )
    Report.objects.filter(pk=made.pk).update(made_at=hour)
    assert "not in these figures" in operator.get("/admin/spark/report/last-day/").content.decode()


def test_the_running_hour_is_in_the_last_24_hours(operator: Client, record: Path) -> None:
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    report(hour, 1, "hourly")
    assert pages.last_day(timezone.now())["rows"] > 0


def test_a_run_says_no_number_before_it_has_one(operator: Client) -> None:
    run = ReportRun.objects.create(
        kind="daily", start=START, end=START + timedelta(days=1), state="running", progress=1.0,
        step="storing reports",
    )  # fmt: skip
    page = operator.get(f"/admin/spark/reportrun/{run.pk}/change/").content.decode()
    assert "99% storing reports" in page
    assert "100%" not in page
    assert "data-live-detail" in page
    assert "data-live-list" in operator.get("/admin/spark/reportrun/").content.decode()


def test_lists_and_the_last_day_are_shown_to_who_may_see_reports_only(client: Client) -> None:
    report()
    stranger = User.objects.create_user("s", is_staff=True)
    client.force_login(stranger)
    assert client.get("/admin/spark/report/").status_code == 403
    assert client.get("/admin/spark/report/last-day/").status_code == 302
    assert client.get("/api/v1/reports/").status_code == 403
    stranger.user_permissions.add(Permission.objects.get(codename="view_report"))
    assert client.get("/admin/spark/report/").status_code == 200
    assert client.get("/admin/spark/report/last-day/").status_code == 200
    assert client.get("/api/v1/reports/").json()["count"] == 1
    asked = client.post("/api/v1/report-runs/", {"kind": "daily", "start": START.isoformat()})
    assert asked.status_code == 403


def test_a_run_is_asked_for_and_cancelled_over_rest(operator: Client) -> None:
    asked = {"kind": "weekly", "start": START.isoformat()}
    first = operator.post("/api/v1/report-runs/", asked)
    again = operator.post("/api/v1/report-runs/", asked)
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["id"] == again.json()["id"]
    assert first.json()["start"] == "2026-11-16T00:00:00Z"
    path = f"/api/v1/report-runs/{first.json()['id']}/cancel/"
    assert operator.post(path).json()["state"] == "cancelled"
    assert operator.post(path).status_code == 409
    assert operator.post("/api/v1/report-runs/", {"kind": "yearly"}).status_code == 400


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("9999-12-31T23:00:00Z", None),
        ("0001-01-01T00:00:00Z", None),
        ("2026-11-20T00:00:00Z", "9999-12-31T23:59:59Z"),
        ("2026-11-20T00:00:00Z", "2026-11-20T00:00:00Z"),
        ("2026-11-20T00:00:00Z", "2026-11-19T00:00:00Z"),
    ],
)
def test_a_period_no_record_has_is_refused(operator: Client, start: str, end: str | None) -> None:
    asked = {"kind": "hourly", "start": start} | ({"end": end} if end else {})
    answer = operator.post("/api/v1/report-runs/", asked)
    assert answer.status_code == 400, answer.content
    assert not ReportRun.objects.exists()


def test_a_body_nested_more_deeply_than_can_be_read_is_refused(operator: Client) -> None:
    answer = operator.post("/api/v1/report-runs/", "[" * 5_000, content_type="application/json")
    assert answer.status_code == 400, answer.content


def test_a_run_is_asked_for_in_the_console(operator: Client) -> None:
    page = operator.get("/admin/spark/reportrun/add/?kind=monthly")
    assert page.status_code == 200
    sent = operator.post(
        "/admin/spark/reportrun/add/",
        {"kind": "monthly", "start_0": "2026-11-20", "start_1": "05:00:00"},
    )
    assert sent.status_code == 302
    run = ReportRun.objects.get()
    assert (run.kind, run.start.isoformat()) == ("monthly", "2026-11-01T00:00:00+00:00")
    assert operator.get("/admin/spark/reportrun/").status_code == 200
    assert operator.get(f"/admin/spark/reportrun/{run.pk}/change/").status_code == 200


def test_tables_are_downloaded_and_no_text_becomes_a_formula(operator: Client) -> None:
    made = report()
    found = operator.get(f"/api/v1/reports/{made.pk}/pairs.csv/")
    assert found["Content-Type"].startswith("text/csv")
    assert "daily-20261120T00-pairs.csv" in found["Content-Disposition"]
    assert ',"\'=cmd()",' in found.content.decode()
    parquet = operator.get(f"/api/v1/reports/{made.pk}/types.parquet/")
    assert pq.read_table(io.BytesIO(parquet.content)).to_pylist()[0]["messages"] == 10
    assert operator.get(f"/api/v1/reports/{made.pk}/secrets.csv/").status_code == 404
    assert api.content([], api.CSV) == b"\r\n"


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_no_cell_of_a_csv_file_is_a_formula_wherever_it_is_opened(delimiter: str) -> None:
    texts = [
        "=cmd()", "+1", "-1", "@x", "\t=1", "\r=1", "\n=1", "＝1", "a,=1", "a;=1", 'a";=1', 'a",=1',
        "a\n=1", "a\r\n=1", "a\t=1", "\u202egnp.exe", "😀", "Ünï", "",
    ]  # fmt: skip
    rows = [{"address": text, "messages": number} for number, text in enumerate(texts)]
    text = api.content(rows, api.CSV).decode()
    opened = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    assert len(opened) == 1 + len(rows)
    assert not any(cell.startswith(api._FORMULA) for line in opened for cell in line)
    if delimiter == ",":
        assert [line[0].removeprefix("'") for line in opened[1:]] == texts
    parquet = io.BytesIO(api.content(rows, api.PARQUET))
    assert pq.read_table(parquet).to_pylist() == rows


def test_a_table_of_which_the_largest_rows_are_kept_says_of_how_many(operator: Client) -> None:
    made = report()
    rows = [{"address": f"hyperty://d/{n}", "messages": 200 - n} for n in range(100)]
    made.figures["tables"]["talkers"] = rows
    made.figures["rows_of"] = {"talkers": 4_211}
    made.save()
    text = operator.get(f"/admin/spark/report/{made.pk}/change/").content.decode()
    assert "The first 25 of 100 rows; all 100 are in the download." in text
    assert "The report keeps the largest 100 of 4,211." in text
    path = f"/api/v1/reports/{made.pk}/talkers"
    name = operator.get(f"{path}.csv/")["Content-Disposition"]
    assert 'daily-20261120T00-talkers-top-100-of-4211.csv"' in name
    kept = pq.read_table(io.BytesIO(operator.get(f"{path}.parquet/").content))
    assert (len(kept), kept.schema.metadata[b"rows_there_were"]) == (100, b"4211")


def test_the_last_24_hours_say_which_tables_were_cut_in_an_hour(operator: Client) -> None:
    hour = report(START - timedelta(hours=1), 1, "hourly")
    assert pages.last_day(START)["cut"] == []
    hour.figures["rows_of"] = {"types": 90}
    hour.save()
    assert pages.last_day(START)["cut"] == ["By type"]


def test_the_openapi_document_has_the_reports(operator: Client) -> None:
    paths = operator.get("/api/schema?format=json").json()["paths"]
    table = paths["/api/v1/reports/{id}/{table}.{form}/"]["get"]
    assert set(table["responses"]["200"]["content"]) == {
        "text/csv", "application/vnd.apache.parquet",
    }  # fmt: skip
    assert set(paths["/api/v1/report-runs/"]) == {"get", "post"}
    assert "202" in paths["/api/v1/report-runs/{id}/cancel/"]["post"]["responses"]


def test_reserved_bandwidth_and_set_ups_are_drawn_and_added_up(operator: Client) -> None:
    hour = timezone.now().astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    for number in range(2):
        start = hour - timedelta(hours=number + 1)
        made = figures(start, 1, "hourly")
        at = start.strftime("%Y-%m-%dT%H:%M:%SZ")
        step = {"event": "relayed", "ending": "video", "code": 0, "times": 3, "bytes": 2**31}
        domains = {"from_domain": "a.example", "to_domain": "b.example"}
        counts = {"set_ups": 2, "failed": 1, "signalling": 8, "messages": 80, "share": 0.1}
        made["tables"] |= {
            "reservations": [step | {"p50_s": 1, "longest_s": 1}],
            "reservation_hours": [
                {"hour": at, "reserved": 4, "refused": 1, "ended": 2, "bytes": 2**31}
            ],
            "p2p": [domains | counts],
        }
        Report.objects.create(
            kind="hourly", start=start, end=start + timedelta(hours=1), rows=10, hours_recorded=1,
            hours_of_period=1, figures=made,
        )  # fmt: skip
    found = pages.last_day(timezone.now())
    (relayed,) = found["tables"]["reservations"]
    assert (relayed["times"], relayed["bytes"]) == (6, 2**32)
    (between,) = found["tables"]["p2p"]
    assert (between["set_ups"], between["signalling"]) == (4, 16)
    assert "share" not in between
    drawn = pages.chart(found)
    assert [value for value in drawn["relayed"] if value] == [2**31] * 2
    assert [value for value in drawn["reservations"]["reserved"] if value] == [4, 4]
    assert drawn["p2p"] == {"labels": ["a.example → b.example"], "values": [4]}
    page = operator.get(f"/admin/spark/report/{Report.objects.first().pk}/change/")
    for name in ("reservations", "relayed", "p2p"):
        assert f'data-chart="{name}"' in page.content.decode()
