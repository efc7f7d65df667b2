"""`manage.py traffic_generate`: made-up traffic, for demonstrations, tests and measurements."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from msgnode.console.command_base import WithExample
from msgnode.traffic.recorder import raw_url


class Command(WithExample):
    example = """  manage.py traffic_generate --rows 200000 --days 7
  manage.py traffic_generate --rows 1000000 --days 1 --seed 7 --json"""
    help = (
        "Write generated rows into the traffic record. They cannot be distinguished from real ones."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--rows", type=int, required=True)
        parser.add_argument("--days", type=int, default=1)
        parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same rows")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        from msgnode.traffic import generate  # with Arrow
        from msgnode.traffic.files import RecordFiles

        if options["rows"] < 1 or options["days"] < 1:
            raise CommandError("--rows and --days must be at least 1.")
        plan = generate.Plan(
            options["rows"], options["days"], options["seed"],
            generate.last_full_hour(datetime.now(UTC)), settings.DOMAIN,
        )  # fmt: skip
        record = settings.RECORD
        files = RecordFiles(
            raw_url(record["URL"]), "generated",
            max_bytes=record["MAX_BYTES"], min_free=record["MIN_FREE_BYTES"],
        )  # fmt: skip
        size = hours = 0
        for hour, rows in generate.hours(plan):
            size += files.write(int(hour.timestamp()), rows)
            hours += 1
        for made_up in (generate.sessions, generate.reservations):
            for hour, rows in made_up(plan):
                size += files.write(int(hour.timestamp()), rows)
        made = {"rows": plan.rows, "hours": hours, "bytes": size}
        told = {**made, "start": plan.start.isoformat(), "end": plan.end.isoformat()}
        text = f"{plan.rows} rows in {hours} hours up to {plan.end:%Y-%m-%d %H:%M}, {size} bytes"
        self.stdout.write(json.dumps(told) if options["json"] else text)
