"""Django's `migrate`, on PostgreSQL beside processes that write and others that migrate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import connections

from msgnode.storage import migrating


class Command(migrate.Command):
    on_step: Callable[[int, str], Any] | None = None
    """Is told the number and the name of each migration that is about to be applied."""
    _step = 0

    def handle(self, *args: Any, **options: Any) -> None:
        using = options["database"]

        def once() -> None:
            super(Command, self).handle(*args, **options)

        if connections[using].vendor != "postgresql" or connections[using].in_atomic_block:
            once()
            return
        try:
            with migrating.alone(using, self._say):
                migrating.look_at_encoding(using, self._say)
                migrating.repeated(once, self._say)
        except migrating.UnfitDatabase as fault:
            raise CommandError(str(fault)) from None

    def migration_progress_callback(
        self, action: str, migration: Any = None, fake: bool = False
    ) -> None:
        if action == "apply_start" and self.on_step is not None:
            self._step += 1
            self.on_step(self._step, str(migration))
        super().migration_progress_callback(action, migration, fake)

    def _say(self, line: str) -> None:
        self.stderr.write(line)
        self.stderr.flush()
