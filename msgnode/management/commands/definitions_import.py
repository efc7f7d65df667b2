"""Take in what definitions_export wrote."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from msgnode.console import definitions
from msgnode.console.command_base import Tool, could_not_be_done, not_as_it_should_be


class Command(Tool):
    help = (
        "Add and update pools, bans and subscriptions from a document of definitions_export; a "
        "running node follows within a second. Nothing is deleted, and nothing is changed if "
        "anything in the document is wrong (exit status 1)."
    )
    example = (
        "  manage.py definitions_import definitions.json --dry-run\n"
        "  ssh old manage.py definitions_export | manage.py definitions_import -"
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("file", help="the document; - for standard input")
        parser.add_argument("--dry-run", action="store_true", help="only check it")

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            name = options["file"]
            document = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        except OSError as fault:
            raise could_not_be_done(str(fault)) from None
        try:
            found = definitions.read(document)
        except ValueError as fault:
            raise not_as_it_should_be(f"{options['file']}: {fault}") from None
        faults = definitions.faults(found)
        new = {} if faults or options["dry_run"] else definitions.take_in(found, _actor())
        lines = (*faults, *(f"{number} new {name}" for name, number in new.items()))
        said = (line.replace("new without_session", "without a session") for line in lines)
        self.say({"faults": faults, "new": new}, said)
        if faults:
            raise not_as_it_should_be(f"{len(faults)} faults; nothing was changed.")


def _actor() -> str:
    """Who the audit log names: the account of the system."""
    try:
        return f"{getpass.getuser()} (command line)"
    except (KeyError, OSError):
        return "command line"
