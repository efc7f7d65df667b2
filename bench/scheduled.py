"""Bring a record to where the schedule has it when the daily report is due.

    python -m bench.scheduled RECORD START END CORES

The days before START are rolled up; the hours from START to END are, each by a run of its own, as
the hourly job leaves them; their day is not.
"""

from __future__ import annotations

import sys
from datetime import datetime, timedelta

from spark import job_main
from spark.jobs import rolling, tiers
from spark.jobs.ledger import Ledger
from spark.jobs.ledger_tiers import DAYS
from spark.jobs.storage import Storage


def main(record: str, start: str, end: str, cores: str) -> None:
    since, until = datetime.fromisoformat(start), datetime.fromisoformat(end)
    spark = job_main.session({"spark.master": f"local[{cores}]", "spark.driver.memory": "2g"})
    raw, rolled = Storage(f"{record}/raw"), Storage(f"{record}/roll-up")
    book, by_day = Ledger(rolled), Ledger(rolled, DAYS)
    past = since - timedelta(days=60)
    before = rolling.stale_hours(raw, book, past, since)
    rolling.roll_up(spark, raw, book, before, "past", lambda share, step: None)
    for day in tiers.stale(book, by_day, past, since):
        tiers.roll_up(spark, book, by_day, [day], f"past-{day:%Y%m%d}")
    for hour, files in rolling.stale_hours(raw, book, since, until).items():
        rolling.roll_up(spark, raw, book, {hour: files}, f"{hour:%H}", lambda share, step: None)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
