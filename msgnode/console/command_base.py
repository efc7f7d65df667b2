"""What the node's commands have in common: an example in --help, --json, exit codes for scripts.

0 it is as it should be · 1 it is not, and the output says what · 2 the command could not be done.
"""

from __future__ import annotations

import json
from argparse import RawDescriptionHelpFormatter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.serializers.json import DjangoJSONEncoder
from django.db import DatabaseError

from msgnode.core.database_errors import first_line
from msgnode.core.errors import Conflict


class WithExample(BaseCommand):
    """A command whose help ends with an `example`, line breaks kept."""

    example: ClassVar[str]

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """A parser whose help ends so."""
        epilog = f"Example:\n{self.example}"
        kwargs |= {"epilog": epilog, "formatter_class": RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)


class Tool(WithExample):
    """A command for operators and their programs, which takes `--json`."""

    requires_system_checks = []

    def execute(self, *args: Any, **options: Any) -> Any:
        """Run the command; what is refused is a line and a status."""
        self.as_json = options["json"]
        try:
            return super().execute(*args, **options)
        except Conflict as why:
            raise not_as_it_should_be(str(why)) from None
        except DatabaseError as fault:
            raise could_not_be_done(f"The database refuses: {first_line(fault)}") from None

    def add_arguments(self, parser: CommandParser) -> None:
        """`--json`, which all of these commands take."""
        parser.add_argument("--json", action="store_true", help="write JSON, for programs")

    def say(self, what: object, lines: Iterable[str]) -> None:
        """Write something: as JSON if that was asked for, else in lines."""
        if self.as_json:
            self.say_json(what)
            return
        for line in lines:
            self.stdout.write(line)

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
