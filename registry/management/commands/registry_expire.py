"""`manage.py registry_expire`: end what is due now, without waiting for the schedule."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from registry import lifecycle, tasks


class Command(BaseCommand):
    help = (
        "Disconnect every entry whose time has run out, and with --purge call dead and delete "
        "what has been gone for long. Example: manage.py registry_expire --purge --json"
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--purge", action="store_true", help="age and purge as well")
        parser.add_argument("--json", action="store_true", help="write the result as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        done = tasks.repeat(lifecycle.expire_due)
        if options["purge"]:
            done += tasks.purge()
        self.stdout.write(json.dumps({"done": done}) if options["json"] else f"{done} entries")
