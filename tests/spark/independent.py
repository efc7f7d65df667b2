"""The figures of a report computed a second time, by DuckDB, from the raw files alone."""

# ruff: noqa: S608 (queries of a test on files of the test)

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb

TO = '"to"'  # a keyword of SQL


def _domain(column: str) -> str:
    domain = f"lower(regexp_extract({column}, '^[^:/]+://([^/]*)', 1))"
    return f"regexp_replace({domain}, '^(msg-node|registry|idm|catalogue|qos)\\.', '')"


class Independent:
    def __init__(self, record: Path, start: datetime, end: datetime) -> None:
        self._db = duckdb.connect()
        self._db.execute("set TimeZone = 'UTC'")
        self._db.execute("set variable start_at = ?::timestamptz", [start])
        self._db.execute("set variable end_at = ?::timestamptz", [end])
        rows = self._db.read_parquet(f"{record}/raw/*/*/*.parquet")
        rows.create_view("stored")
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
