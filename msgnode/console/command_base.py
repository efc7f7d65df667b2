"""What the node's commands have in common: an example in --help, --json, exit codes for scripts.

0 it is as it should be · 1 it is not, and the output says what · 2 the command could not be done.
"""

from __future__ import annotations

import json
from argparse import RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any, ClassVar

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.serializers.json import DjangoJSONEncoder
from django.db import DatabaseError

from msgnode.core.database_errors import first_line


class WithExamples(BaseCommand):
    """A command whose help ends with its `examples`, line breaks kept."""

    examples: ClassVar[str]

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """A parser whose help ends so."""
        kwargs |= {"epilog": self.examples, "formatter_class": RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)


class Tool(BaseCommand):
    """A command for operators and their programs: `--json`, and an `example` in its help."""

    example: ClassVar[str]
    requires_system_checks = []

    def execute(self, *args: Any, **options: Any) -> Any:
        """Run the command; what the database refuses is a line and status 2."""
        try:
            return super().execute(*args, **options)
        except DatabaseError as fault:
            raise could_not_be_done(f"The database refuses: {first_line(fault)}") from None

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """A parser whose help ends with the example, line breaks kept."""
        epilog = f"Example:\n{self.example}"
        kwargs |= {"epilog": epilog, "formatter_class": RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        """`--json`, which all of these commands take."""
        parser.add_argument("--json", action="store_true", help="write JSON, for programs")

    def say_json(self, what: object) -> None:
        """Write something as JSON, dates and decimals included."""
        self.stdout.write(json.dumps(what, cls=DjangoJSONEncoder, ensure_ascii=False, indent=2))


def read_file(path: str, option: str) -> str:
    """The text of a file that an option names; what cannot be read is a line and status 2."""
    try:
        return Path(path).read_text()
    except (OSError, ValueError) as error:
        raise could_not_be_done(f"{option} cannot be read: {error}") from None


def not_as_it_should_be(text: str) -> CommandError:
    """What a command raises that has looked, and found something wrong: status 1."""
    return CommandError(text, returncode=1)


def could_not_be_done(text: str) -> CommandError:
    """Raised by a command that could not be executed: status 2."""
    return CommandError(text, returncode=2)
