"""Django's `check`, with the checks of the database where there is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.commands import check
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connection

from msgnode.core.database_errors import first_line


class Command(check.Command):
    def handle(self, *app_labels: Any, **options: Any) -> None:
        if options.get("databases") is None and self._answers():
            options["databases"] = [DEFAULT_DB_ALIAS]
        super().handle(*app_labels, **options)

    def _answers(self) -> bool:
        """Whether there is a database; none is created by asking."""
        name = connection.settings_dict["NAME"]
        if connection.vendor == "sqlite" and not Path(name).is_file():
            return False
        try:
            connection.ensure_connection()
        except DatabaseError as fault:
            self.stderr.write(f"The database was not looked at: {first_line(fault)}")
            return False
        return True
