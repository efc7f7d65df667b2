"""`manage.py registry_expire`: end what is due now, without waiting for the schedule."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from registry import api, lifecycle


class Command(BaseCommand):
    help = (
        "Disconnect every expired entry. With --purge, also mark entries dead that have been "
        "disconnected for long, and delete long dead ones. "
        "Example: manage.py registry_expire --purge --json"
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--purge", action="store_true", help="also mark dead entries and delete old ones"
        )
        parser.add_argument("--json", action="store_true", help="write the result as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        done = lifecycle.repeat(lifecycle.expire_due)
        if options["purge"]:
            done += api.purge(timezone.now())
        self.stdout.write(json.dumps({"done": done}) if options["json"] else f"{done} entries")
