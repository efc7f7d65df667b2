"""Restore the node from an archive of `backup`."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.db import DatabaseError

from msgnode.backup import in_use, restore
from msgnode.backup.manifest import ArchiveFault
from msgnode.console.command_base import Tool, could_not_be_done, not_as_it_should_be


class Command(Tool):
    help = (
        "Restore a stopped node from an archive of `backup`. The archive is checked first. If it "
        "is damaged or from a later version, the command says why, changes nothing and exits with "
        "status 1. An existing SQLite database is moved aside, not deleted."
    )
    example = (
        "  manage.py restore /backups/monday.tar.gz --check\n"
        "  manage.py restore /backups/monday.tar.gz --replace\n"
        "  manage.py restore --finish"
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "archive", nargs="?", type=Path, help="an archive that `backup` has written"
        )
        choice = parser.add_mutually_exclusive_group()
        choice.add_argument(
            "--check", action="store_true", help="only check whether the archive could be restored"
        )
        choice.add_argument(
            "--replace", action="store_true", help="restore although there is a database already"
        )
        choice.add_argument("--finish", action="store_true", help="complete an interrupted restore")

    def handle(self, *_args: Any, **options: Any) -> None:
        file: Path | None = options["archive"]
        if (file is None) != options["finish"]:
            raise could_not_be_done("Name an archive, or --finish.")
        try:
            if file is None:
                self._finish()
            elif options["check"]:
                self._tell(restore.Restored(restore.check(file), None, []), options, "could be")
            else:
                done = restore.restore(file, replace=options["replace"])
                self._tell(done, options, "was")
        except ArchiveFault as fault:
            why = _printable(str(fault))
            raise not_as_it_should_be(f"{file}: {why} Nothing has changed.") from None
        except (restore.RestoreRefused, in_use.InUse) as fault:
            raise could_not_be_done(f"{fault} Nothing has changed.") from None
        except OSError as fault:
            raise could_not_be_done(f"{_in_words(fault, file)} Nothing has changed.") from None
        except (sqlite3.Error, DatabaseError) as fault:
            raise could_not_be_done(f"Not restored: {fault}") from None

    def _finish(self) -> None:
        with in_use.held(settings.DATA_DIR):
            was_unfinished = restore.finish(settings.DATA_DIR)
        self.stdout.write("Restored." if was_unfinished else "No restore was interrupted.")

    def _tell(self, done: restore.Restored, options: dict[str, Any], was: str) -> None:
        earlier = str(done.earlier) if done.earlier else None
        if options["json"]:
            told = restore.described(done.manifest)
            told |= {"record_lacks": done.lacking, "record_fault": done.record_fault}
            self.say_json({**told, "earlier": earlier})
            return
        rows = sum(done.manifest.database.rows.values())
        made_at = done.manifest.made_at
        self.stdout.write(f"The state of {made_at:%F %T}Z, {rows:,} rows, {was} restored.")
        if earlier:
            self.stdout.write(f"What was here is in {earlier}.")
        if done.lacking:
            self.stdout.write(
                f"{len(done.lacking)} files of the traffic record are not here, such as "
                f"{_printable(done.lacking[0])}: copy them to RECORD_URL."
            )
        if done.record_fault:
            self.stdout.write(f"The traffic record could not be checked: {done.record_fault}")
        if done.manifest.domain != settings.DOMAIN:
            domain = _printable(done.manifest.domain)
            self.stdout.write(f"The archive is from {domain}, but DOMAIN is {settings.DOMAIN}.")


def _printable(text: str) -> str:
    """What an archive says, without what would command the terminal."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _in_words(fault: OSError, archive: Path | None) -> str:
    """What is missing or refused, by its name."""
    named = Path(fault.filename) if fault.filename else None
    if named is None or not fault.strerror:
        return f"Not restored: {fault}."
    what = "the archive" if named == archive else "the file"
    if isinstance(fault, FileNotFoundError):
        return f"Not restored: there is no file {named}."
    return f"Not restored: {what} {named} cannot be read or written ({fault.strerror.lower()})."
