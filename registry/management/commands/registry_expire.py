"""`manage.py registry_expire`: end what is due now, without waiting for the schedule."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from registry import lifecycle


class Command(BaseCommand):
    help = "Disconnect every expired entry. Example: manage.py registry_expire --json"
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="write the result as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        done = lifecycle.repeat(lifecycle.expire_due)
        self.stdout.write(json.dumps({"done": done}) if options["json"] else f"{done} entries")
