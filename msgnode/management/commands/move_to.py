"""Move the node from SQLite to PostgreSQL."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.db import DatabaseError

from msgnode.backup.in_use import InUse
from msgnode.console.command_base import Tool, could_not_be_done
from msgnode.launch.error_messages import without_password


class Command(Tool):
    help = (
        "Copy every row of the node's SQLite database to an empty PostgreSQL database and compare "
        "them one by one. Stop the node first. A move that was interrupted goes on when "
        "the command is given again. The SQLite file stays as it is."
    )
    example = "  manage.py move_to postgres://node:password@db.example.org/node"

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("database_url", help="an empty PostgreSQL database")

    def handle(self, *_args: Any, **options: Any) -> None:
        from msgnode.backup import move  # with the driver of PostgreSQL

        url = options["database_url"]
        say = (lambda _: None) if options["json"] else self._say
        try:
            moved = move.move(url, say)
        except (move.CannotMove, InUse) as fault:
            raise could_not_be_done(str(fault)) from None
        except (DatabaseError, OSError) as fault:
            raise could_not_be_done(f"Not moved: {fault}") from None
        lines = [
            f"{sum(moved.values()):,} rows in {len(moved)} tables, all compared.",
            f"From now on the node's DATABASE_URL is {without_password(url)}",
        ]
        self.say({"rows": moved}, lines)

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
