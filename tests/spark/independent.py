"""The figures of a report computed a second time, by DuckDB, from the raw files alone."""

# ruff: noqa: S608 (queries of a test on files of the test)

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb

from msgnode.core import addresses as of_the_node
from msgnode.runtime.python import destinations

TO = '"to"'  # a keyword of SQL
FAILED = "outcome in ('undeliverable', 'blocked', 'refused', 'dropped')"
P2P = "^(hyperty-)?runtime://[^/]*/([^/]*/)?p2p(handler|requester)(/|$)"
IN_PERIOD = "\"at\" >= getvariable('start_at') and \"at\" < getvariable('end_at')"
OF_RESERVATIONS = "(event = 'relayed' or event like 'reserv%')"
SERVICE = (
    f"case when regexp_matches(lower({TO}), '{P2P}') then 'p2p' else regexp_extract(lower({TO}), "
    "'^[^:/]+://(msg-node|registry|idm|catalogue|qos)[.]', 1) end"
)


def _domain(column: str) -> str:
    domain = f"lower(regexp_extract({column}, '^[^:/]+://([^/]*)', 1))"
    return f"regexp_replace({domain}, '^(msg-node|registry|idm|catalogue|qos)\\.', '')"


class Independent:
    def __init__(self, record: Path, start: datetime, end: datetime) -> None:
        self._db = duckdb.connect()
        self._db.execute("set TimeZone = 'UTC'")
        self._db.execute("set variable start_at = ?::timestamptz", [start])
        self._db.execute("set variable end_at = ?::timestamptz", [end])
        rows = self._db.read_parquet(f"{record}/raw/*/*/*.parquet", union_by_name=True)
        rows.create_view("rows")
        is_of_session = "event is not null" if "event" in rows.columns else "false"
        self._db.execute(f"create view stored as select * from rows where not ({is_of_session})")
        self._db.execute(f"create view steps as select * from rows where {is_of_session}")
        self._db.execute(
            f"create view traffic as select *, coalesce(nullif(runtime, ''), session) as who, "
            f"{_domain('sender')} as from_domain, {_domain(TO)} as to_domain "
            "from stored where \"at\" >= getvariable('start_at') and \"at\" < getvariable('end_at')"
        )

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._db.execute(query).fetchall()

    def totals(self) -> dict[str, int]:
        names = ("messages", "bytes", "deliveries", "asserted")
        (row,) = self._rows(
            "select count(*), sum(size), sum(listeners), sum(asserted::int) from traffic"
        )
        by_outcome = dict(self._rows("select outcome, count(*) from traffic group by all"))
        return dict(zip(names, map(int, row), strict=True)) | by_outcome

    def counts(self, *keys: str) -> dict[tuple[Any, ...], int]:
        columns = ", ".join(keys)
        found = self._rows(f"select {columns}, count(*) from traffic group by all")
        return {row[:-1]: row[-1] for row in found}

    def causes(self) -> dict[tuple[Any, ...], int]:
        found = self._rows(
            "select outcome, code, effect, rule, count(*) from traffic where outcome in "
            "('undeliverable', 'blocked', 'refused', 'dropped') group by all"
        )
        return {row[:-1]: row[-1] for row in found}

    def percentile(self, share: float, *, component: str = "") -> float:
        (row,) = self._rows(
            f"select quantile_disc(latency_us, {share}) from traffic where "
            f"outcome in ('delivered', 'answered') and component = '{component}'"
        )
        return float(row[0])

    def highest(self) -> int:
        (row,) = self._rows(
            "select max(latency_us) from traffic where outcome = 'delivered' and component = ''"
        )
        return int(row[0])

    def distinct(self, column: str, where: str = "true") -> set[str]:
        found = self._rows(f"select distinct {column} from traffic where {where}")
        return {row[0] for row in found}

    def peers(self, home: str) -> dict[str, tuple[int, ...]]:
        """domain → messages, bytes and failed ones to it, then from it."""
        found = self._rows(
            f"""
            with sides as (
                select to_domain as name, true as is_to, size, {FAILED} as failed from traffic
                union all
                select from_domain, false, size, {FAILED} from traffic
            )
            select name,
                count(*) filter (is_to), coalesce(sum(size) filter (is_to), 0),
                count(*) filter (is_to and failed),
                count(*) filter (not is_to), coalesce(sum(size) filter (not is_to), 0),
                count(*) filter (not is_to and failed)
            from sides where name not in ('', '{home}') group by name
            """
        )
        return {row[0]: tuple(map(int, row[1:])) for row in found}

    def networks(self) -> dict[str, int]:
        """Legacy network → messages to it, each address taken apart as runtimes do."""
        found: dict[str, int] = {}
        for (to,), messages in self.counts(TO).items():
            address = of_the_node.parse(to)
            if "@" in to and address.scheme not in ("hyperty", "runtime", "comm", "domain"):
                name = f"{address.scheme}.{destinations._legacy_domain(address)}"
                found[name] = found.get(name, 0) + messages
        return found

    def reservations(self) -> dict[tuple[str, str, int], tuple[int, int, int, float]]:
        """(event, ending, code) → how often, bytes, the longest and the median (s)."""
        found = self._rows(
            f"""
            select event, outcome, code, count(*), sum(size::bigint), max(lasted_s),
                quantile_disc(greatest(lasted_s, 1), 0.5)
            from steps where {IN_PERIOD} and {OF_RESERVATIONS} group by all
            """
        )
        return {row[:3]: (int(row[3]), int(row[4]), *row[5:]) for row in found}

    def reservation_hours(self) -> dict[tuple[str, str], int]:
        """(hour, column) → how many; bytes relayed as `bytes`."""
        found = self._rows(
            f"""
            select strftime("at", '%Y-%m-%dT%H') as hour,
                case event when 'reserved' then 'reserved' when 'reservation-refused' then 'refused'
                    when 'reservation-ended' then 'ended' else 'bytes' end as what,
                case when event = 'relayed' then sum(size::bigint) else count(*) end as n
            from steps where {IN_PERIOD} and {OF_RESERVATIONS} group by hour, what, event
            """
        )
        return {row[:2]: int(row[2]) for row in found}

    def p2p(self) -> dict[tuple[str, str], tuple[int, int, int, int, float]]:
        """Domains → set-ups, failed ones, signalling, all messages, share of signalling."""
        found = self._rows(
            f"""
            with told as (
                select from_domain, to_domain, {SERVICE} = 'p2p' as is_p2p,
                    type = 'create' as is_set_up, {FAILED} as failed from traffic
            )
            select from_domain, to_domain, count(*) filter (is_p2p and is_set_up),
                count(*) filter (is_p2p and is_set_up and failed), count(*) filter (is_p2p),
                count(*), round(count(*) filter (is_p2p) / count(*), 4)
            from told group by all having count(*) filter (is_p2p) > 0
            """
        )
        return {row[:2]: (*map(int, row[2:6]), float(row[6])) for row in found}

    def sessions(self) -> dict[tuple[str, str, int], tuple[int, int, int, float, float]]:
        """(event, ending, code) → steps, resumptions, the longest, the median and the 99th (s)."""
        found = self._rows(
            f"""
            select event, outcome, code, count(*), sum(resumptions), max(lasted_s),
                quantile_disc(greatest(lasted_s, 1), 0.5),
                quantile_disc(greatest(lasted_s, 1), 0.99)
            from steps where {IN_PERIOD} and not {OF_RESERVATIONS} group by all
            """
        )
        return {row[:3]: (int(row[3]), int(row[4]), *row[5:]) for row in found}

    def session_hours(self) -> dict[tuple[str, str], int]:
        """(hour, event) → steps."""
        found = self._rows(
            f"""
            select strftime("at", '%Y-%m-%dT%H'), event, count(*) from steps
            where {IN_PERIOD} and not {OF_RESERVATIONS} group by all
            """
        )
        return {row[:2]: row[2] for row in found}

    def services(self) -> dict[tuple[str, str], int]:
        found = self._rows(f"select {SERVICE} as s, to_domain, count(*) from traffic group by all")
        return {(service, domain): n for service, domain, n in found if service}

    def line(self, measure: str, last: datetime) -> tuple[float, float, float, int]:
        """Slope, value at `last`, r2 and days of the least-squares line through the whole days."""
        (row,) = self._rows(
            f"""
            with hours as (
                select date_trunc('hour', "at") as hour, count(*) as messages, sum(size) as bytes
                from traffic group by all
            ), days as (
                select date_trunc('day', hour) as day, sum(messages) as messages,
                    sum(bytes) as bytes, max(messages) as busiest_hour, count(*) as hours
                from hours group by all having count(*) = 24
            ), points as (
                select date_diff('day', timestamptz '{last.isoformat()}', day) as x,
                    {measure}::double as y from days
            )
            select regr_slope(y, x), regr_intercept(y, x), regr_r2(y, x), count(*) from points
            """
        )
        return row
