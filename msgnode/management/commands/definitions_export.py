"""Write down what operators have defined: pools, bans, subscriptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from django.core.management.base import CommandParser

from msgnode.console.command_base import Tool, could_not_be_done
from msgnode.console.definitions import PARTS, collect


class Command(Tool):
    help = "Write pools, bans and subscriptions as one JSON document, for definitions_import."
    example = "  manage.py definitions_export --output definitions.json"

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--output", type=Path, help="file to write (standard output)")

    def handle(self, *_args: Any, **options: Any) -> None:
        found = collect()
        document = msgspec.json.format(msgspec.json.encode(found), indent=2)
        if options["output"] is None:
            self.stdout.write(document.decode())
            return
        try:
            options["output"].write_bytes(document + b"\n")
        except OSError as fault:
            raise could_not_be_done(str(fault)) from None
        written = {part: len(getattr(found, part)) for part in PARTS}
        self.say(written, [", ".join(f"{number} {part}" for part, number in written.items())])
