"""Back the node up into one file."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.db import DatabaseError
from django.utils import timezone

from msgnode.backup import restore
from msgnode.backup.restore import described
from msgnode.console.command_base import Tool, could_not_be_done


class Command(Tool):
    help = (
        "Write the node's state into one archive: the database, the secret key that the node has "
        "generated, definitions, and the list of the traffic record's files. The node may be "
        "running. The archive contains secrets and personal data; only its owner can read it."
    )
    example = (
        "  manage.py backup --output /backups/monday.tar.gz\n"
        "  manage.py backup --json\n"
        "  rsync -a var/record/ /backups/record/     # the record's files, which are only listed"
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--output", type=Path, help="file to write (default: in DATA_DIR/backups/)"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        output: Path | None = options["output"]
        if output is None:
            name = f"{settings.DOMAIN}-{timezone.now():%Y%m%dT%H%M%SZ}.tar.gz"
            output = settings.DATA_DIR / "backups" / name
        try:
            made, size = restore.make(output.absolute())
        except (OSError, sqlite3.Error, DatabaseError) as fault:
            raise could_not_be_done(f"No backup was made: {fault}") from None
        rows = sum(made.database.rows.values())
        lines = [f"{output}: {size:,} bytes, {rows:,} rows of {made.database.engine}."]
        if settings.OWN_SECRET_KEY is None:
            lines.append(
                "SECRET_KEY comes from the environment and is not in the archive: back it up, too."
            )
        self.say({"archive": str(output), "bytes": size, **described(made)}, lines)
