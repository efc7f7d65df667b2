"""The content of a report's page: numbers with their change, charts and tables, as plain values.

Every chart is drawn from a table below it. An hour without rows is shown and described as a gap: it
is unknown whether there was no traffic or the node was down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.template.defaultfilters import filesizeformat
from django.utils import timezone

from spark.jobs.outcomes import EFFECTS, FAILED, RESERVATION_EVENTS, SESSION_EVENTS
from spark.models import Report, ReportRun

TABLES = {
    "hours": "By hour",
    "pairs": "Between domains",
    "peers": "Peer domains",
    "networks": "Legacy networks",
    "services": "Services of domains, and P2P signalling",
    "p2p": "Set-ups of P2P connections (what passes them, passes no node)",
    "types": "By type",
    "components": "By component",
    "schemes": "Between schemes",
    "causes": "Why messages did not arrive",
    "rules": "What policies decided",
    "sessions": "Sessions: how they went on and ended, and how long they lasted (s)",
    "session_hours": "Sessions by hour",
    "reservations": "Reserved bandwidth: made, refused, relayed and ended",
    "reservation_hours": "Reserved bandwidth by hour",
    "talkers": "Top talkers",
    "listeners": "Top listeners",
    "latency_types": "Latency by type and component (µs)",
    "latency_hours": "Latency of relayed messages by hour (µs)",
    "new_runtimes": "New runtimes",
    "silent_runtimes": "Silent runtimes",
    "days": "By day (whole days)",
    "forecast": "Forecast",
    "anomalies": "Hours out of the ordinary",
    "damaged_files": "Raw files that are missing or could not be read",
}
_BY_DAY = {
    "hours": "By day",
    "latency_hours": "Latency of relayed messages by day (µs)",
    "session_hours": "Sessions by day",
    "reservation_hours": "Reserved bandwidth by day",
    "days": "Whole days, this year and the one before",
}
_ROWS_SHOWN = 25
_SUMMED = {
    "sessions": ("event", "ending", "code", "sessions", "resumptions"),
    "reservations": ("event", "ending", "code", "times", "bytes"),
    "p2p": ("from_domain", "to_domain", "set_ups", "failed", "signalling", "messages"),
}
"""Tables of which the last day has sums only: no percentiles and no shares."""
_ADDED_UP = (
    "pairs", "peers", "networks", "services", "types", "components", "schemes", "causes", "rules",
    "talkers", "listeners",
)  # fmt: skip


def rows_of(figures: dict[str, Any], table: str) -> list[dict[str, Any]]:
    """The rows of a table of a report."""
    if table == "anomalies":
        return list(figures.get("anomalies", []))
    return list(figures.get("tables", {}).get(table, []))


def rows_there_were(figures: dict[str, Any], table: str) -> int:
    """How many rows there were, of which a report keeps the largest."""
    kept = len(rows_of(figures, table))
    return max(kept, int(figures.get("rows_of", {}).get(table, kept)))


def context(figures: dict[str, Any]) -> dict[str, Any]:
    """What the template shows of a report."""
    totals, latency = figures["totals"], figures["latency"]
    messages = totals.get("messages", 0)
    failed = sum(totals.get(outcome, 0) for outcome in FAILED)
    change = figures.get("change", {})
    distinct = figures.get("distinct", {})
    gaps = missing_hours(figures)
    incomplete = incomplete_hours(figures)
    return {
        "figures": figures,
        "from": _readable_time(figures["start"]),
        "until": _readable_time(figures["end"]),
        "cards": [
            _card("Messages", f"{messages:,}", change.get("messages")),
            _card("Bytes", f"{totals.get('bytes', 0):,}", change.get("bytes")),
            _card("Deliveries", f"{totals.get('deliveries', 0):,}", change.get("deliveries")),
            _card("Not arrived", f"{failed:,} ({_share(failed, messages)})", None),
            _card("With identity", _share(totals.get("asserted", 0), messages), None),
            *(_card(f"{role.title()}s", f"≈ {distinct[role]:,.0f}", None) for role in distinct),
            *([_card("Latency p50 / p99", _microseconds(latency), None)] if latency else []),
        ],
        "gaps": gaps,
        "gap_text": _spans(gaps),
        "incomplete": incomplete,
        "incomplete_text": _spans(incomplete),
        "compared": _compared(figures),
        "cut": ", ".join(figures.get("cut", [])),
        "tables": [
            {
                "name": name,
                "title": title if figures.get("step_hours", 1) == 1 else _BY_DAY.get(name, title),
                "headers": [header.replace("_", " ") for header in rows[0]],
                "rows": [list(row.values()) for row in rows[:_ROWS_SHOWN]],
                "says": _says(len(rows), rows_there_were(figures, name)),
            }
            for name, title in TABLES.items()
            if (rows := rows_of(figures, name))
        ],
        "chart": chart(figures),
    }


def incomplete_hours(figures: dict[str, Any]) -> list[datetime]:
    """The hours of which rows are missing, because raw files are or could not be read."""
    return [datetime.fromisoformat(hour) for hour in figures.get("hours_incomplete", [])]


def incomplete_text(figures: dict[str, Any]) -> str:
    """The hours of which rows are missing, in words; empty if there are none."""
    return _spans(incomplete_hours(figures))


def chart(figures: dict[str, Any]) -> dict[str, Any]:
    """The data of the charts, every hour of the period in its place, None where no rows are."""
    hours = {row["hour"][:13]: row for row in rows_of(figures, "hours")}
    latency = {row["hour"][:13]: row for row in rows_of(figures, "latency_hours")}
    sessions = {row["hour"][:13]: row for row in rows_of(figures, "session_hours")}
    reserved = {row["hour"][:13]: row for row in rows_of(figures, "reservation_hours")}
    step = figures.get("step_hours", 1)
    every = [hour.isoformat()[:13] for hour in hours_of(figures)[::step]]

    def series(rows: dict[str, dict[str, Any]], name: str) -> list[Any]:
        return [rows[hour].get(name) if hour in rows else None for hour in every]

    outcomes = ("delivered", "answered", "queued", *FAILED)
    return {
        "step": "hour" if step == 1 else "day",
        "hours": [hour[5:10] if step > 1 else f"{hour[5:10]} {hour[11:13]}:00" for hour in every],
        "outcomes": {name: series(hours, name) for name in outcomes},
        "expected": series(hours, "messages_expected"),
        "odd": [
            bool(
                hour in hours and (hours[hour].get("messages_odd") or hours[hour].get("failed_odd"))
            )
            for hour in every
        ],
        "latency": {name: series(latency, name) for name in ("p50", "p95", "p99")},
        "effects": {name: series(hours, name) for name in EFFECTS},
        "sessions": {name: series(sessions, name) for name in SESSION_EVENTS} if sessions else {},
        "reservations": {name: series(reserved, name) for name in RESERVATION_EVENTS}
        if reserved
        else {},
        "relayed": series(reserved, "bytes") if reserved else [],
        "p2p": _bars(figures, "p2p", "from_domain", "to_domain", value="set_ups"),
        "peers": _sides(figures, "peers"),
        "networks": _sides(figures, "networks"),
        "services": _bars(figures, "services", "to_service", "to_domain"),
        "forecast": _forecast(figures),
        "types": _bars(figures, "types", "type"),
        "components": _bars(figures, "components", "component", empty="relayed"),
        "pairs": _bars(figures, "pairs", "from_domain", "to_domain"),
    }


def hours_of(figures: dict[str, Any]) -> list[datetime]:
    """The hours a report has figures for."""
    start = datetime.fromisoformat(figures["start"])
    return [start + timedelta(hours=number) for number in range(figures["hours_of_period"])]


def missing_hours(figures: dict[str, Any], now: datetime | None = None) -> list[datetime]:
    """Hours of the period that are over and have no rows."""
    there = {datetime.fromisoformat(hour) for hour in figures["hours_recorded"]}
    until = now or timezone.now()
    return [h for h in hours_of(figures) if h not in there and h + timedelta(hours=1) <= until]


def last_day(now: datetime) -> dict[str, Any]:
    """The running hour and the 23 before it as one report, put together from those of the hours."""
    end = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    start = end - timedelta(hours=24)
    found = Report.objects.filter(kind="hourly", start__gte=start, start__lt=end).order_by("start")
    every = [report.figures for report in found]
    sums: Counter[str] = Counter()
    for figures in every:
        sums.update(figures["totals"])
    tables = {name: _added(rows_of(figures, name) for figures in every) for name in _ADDED_UP}
    cut = [
        TABLES[name]
        for name in _ADDED_UP
        if any(rows_there_were(hour, name) > len(rows_of(hour, name)) for hour in every)
    ]
    for table, names in _SUMMED.items():
        tables[table] = _added(
            [{name: row[name] for name in names} for row in rows_of(figures, table)]
            for figures in every
        )
    for name in ("hours", "latency_hours", "session_hours", "reservation_hours", "damaged_files"):
        tables[name] = [row for figures in every for row in rows_of(figures, name)]
    return {
        "kind": "last 24 hours",
        "start": start.isoformat(),
        "end": end.isoformat(),
        "hours_of_period": 24,
        "hours_recorded": [hour for figures in every for hour in figures["hours_recorded"]],
        "hours_incomplete": [
            hour for figures in every for hour in figures.get("hours_incomplete", [])
        ],
        "rows": sum(figures["rows"] for figures in every),
        "totals": dict(sums),
        "distinct": {},
        "latency": {},
        "tables": tables,
        "cut": cut,
    }


def not_in_last_day(figures: dict[str, Any]) -> dict[str, Any]:
    """What the record has of the last 24 hours that their reports do not tell yet, in words."""
    start = datetime.fromisoformat(figures["start"])
    found = hours_not_rolled_up(start, start + timedelta(hours=figures["hours_of_period"]))
    running = datetime.fromisoformat(figures["end"]) - timedelta(hours=1)
    return {
        "running": _spans([running]),
        "unrolled": found,
        "unrolled_text": _spans(found.hours),
        "unrolled_size": filesizeformat(found.bytes),
    }


def _added(tables: Iterable[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Rows with the same words added up."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in (row for rows in tables for row in rows):
        words = tuple(v for k, v in row.items() if isinstance(v, str) or k == "code")
        total = found.setdefault(words, dict.fromkeys(row, 0))
        for name, value in row.items():
            total[name] = value if isinstance(value, str) or name == "code" else total[name] + value
    return sorted(found.values(), key=_weight)


def _weight(row: dict[str, Any]) -> int:
    return -int(row.get("messages", row.get("sessions", row.get("times", 0))))


def _bars(
    figures: dict[str, Any],
    table: str,
    key: str,
    to: str = "",
    *,
    empty: str = "none",
    value: str = "messages",
) -> Any:
    rows = rows_of(figures, table)[:12]
    labels = [row[key] or empty for row in rows]
    if to:
        labels = [f"{label} → {row[to] or 'none'}" for label, row in zip(labels, rows, strict=True)]
    return {"labels": labels, "values": [row[value] for row in rows]}


def _sides(figures: dict[str, Any], table: str) -> dict[str, Any]:
    rows = rows_of(figures, table)[:12]
    return {
        "labels": [row["name"] for row in rows],
        "to": [row["to_messages"] for row in rows],
        "from": [row["from_messages"] for row in rows],
    }


def _forecast(figures: dict[str, Any]) -> dict[str, Any]:
    """The messages of the days, and behind them what is expected of those to come."""
    days = rows_of(figures, "days")
    ahead = [row for row in rows_of(figures, "forecast") if row["measure"] == "messages"]
    if not ahead:
        return {"labels": []}
    none = [None] * len(days)
    return {
        "labels": [row["day"] for row in (*days, *ahead)],
        "days": [*(row["messages"] for row in days), *(None for _ in ahead)],
        **{name: [*none, *(row[name] for row in ahead)] for name in ("forecast", "low", "high")},
    }


def _says(kept: int, there_were: int) -> str:
    """What of a table is not on the page."""
    told = []
    if kept > _ROWS_SHOWN:
        told.append(f"The first {_ROWS_SHOWN} of {kept:,} rows; all {kept:,} are in the download.")
    if there_were > kept:
        told.append(f"The report keeps the largest {kept:,} of {there_were:,}.")
    return " ".join(told)


def _readable_time(text: str) -> str:
    """A moment of a report for people, without an hour that is midnight."""
    return text[:16].replace("T", " ").removesuffix(" 00:00")


def _card(title: str, value: str, change: float | None) -> dict[str, Any]:
    return {"title": title, "value": value, "change": None if change is None else f"{change:+.1%}"}


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"


def _microseconds(latency: dict[str, Any]) -> str:
    return f"{latency['p50']:,.0f} / {latency['p99']:,.0f} µs"


def _compared(figures: dict[str, Any]) -> str:
    if "previous" not in figures:
        return ""
    if not figures["previous"]:
        return "There is nothing recorded of the period before to compare with."
    there, all_ = figures["previous_hours"], figures["hours_of_period"]
    partial = f" (of which {there} hours are recorded)" if there < all_ else ""
    return f"Changes are against the period before{partial}."


def _spans(hours: list[datetime]) -> str:
    """Hours as text, neighbours joined: 02:00–05:00, 09:00–10:00."""
    spans: list[list[datetime]] = []
    for hour in hours:
        if spans and spans[-1][1] == hour:
            spans[-1][1] = hour + timedelta(hours=1)
        else:
            spans.append([hour, hour + timedelta(hours=1)])
    told = [f"{a:%m-%d %H:%M}–{b:%H:%M}" for a, b in spans[:8]]
    return ", ".join(told) + (f" and {len(spans) - 8} more" if len(spans) > 8 else "")


if TYPE_CHECKING:
    from pyarrow import fs


@dataclass(frozen=True, slots=True)
class Unrolled:
    """Hours with rows that have no report, or an older one; bytes of their files.

    `fault` says why the record could not be looked at; `waiting` whether a run for them waits or
    is under way.
    """

    hours: list[datetime] = field(default_factory=list)
    bytes: int = 0
    fault: str = ""
    waiting: bool = False


def hours_not_rolled_up(start: datetime, end: datetime) -> Unrolled:
    """Hours in [start, end) whose rows are newer than their report."""
    # Arrow is loaded by who asks, not by every program
    from msgnode.traffic.files import files_below, folder_of
    from msgnode.traffic.recorder import raw_url
    from spark.jobs.places import place

    made = dict(
        Report.objects.filter(kind="hourly", start__gte=start, start__lt=end).values_list(
            "start", "made_at"
        )
    )
    found: list[datetime] = []
    size = 0
    try:
        system, root = place(raw_url(settings.RECORD["URL"]))
        for number in range(int((end - start) / timedelta(hours=1))):
            hour = start + timedelta(hours=number)
            files = [
                file
                for file in files_below(system, f"{root}/{folder_of(int(hour.timestamp()))}")
                if file.base_name.endswith(".parquet") and not file.base_name.startswith("_")
            ]
            if files and (hour not in made or _newest(files) > made[hour]):
                found.append(hour)
                size += sum(file.size for file in files)
    except (OSError, ValueError) as error:
        return Unrolled(fault=str(error)[:200])
    under_way = ReportRun.objects.filter(
        kind="hourly", state__in=(ReportRun.State.QUEUED, ReportRun.State.RUNNING)
    )
    return Unrolled(found, size, waiting=under_way.exists())


def _newest(files: list[fs.FileInfo]) -> datetime:
    newest: datetime = max(file.mtime for file in files)
    return newest
