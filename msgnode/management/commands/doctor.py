"""Look at everything that the node depends on."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from msgnode.console.command_base import Tool, not_as_it_should_be
from msgnode.launch import doctor


class Command(Tool):
    help = (
        "Look at settings, secrets, disk, database, Redis, clocks, certificates, the port, "
        "workers, alarms and backups, and say of what is not well what to do. Changes nothing. "
        "Exit status 1 if something is wrong; warnings alone are status 0."
    )
    example = (
        "  manage.py doctor\n  manage.py doctor --json | jq '.[] | select(.state != \"well\")'"
    )

    def handle(self, *_args: Any, **options: Any) -> None:
        found = doctor.look()
        lines = []
        for each in found:
            lines.append(f"{each.state:<8} {each.part:<9} {each.text}")
            lines += [f"{'':<18} {each.remedy}"] if each.remedy else []
        self.say([asdict(each) for each in found], lines)
        wrong = sum(each.state == doctor.WRONG for each in found)
        if wrong:
            raise not_as_it_should_be(f"{wrong} of these must be mended.")
