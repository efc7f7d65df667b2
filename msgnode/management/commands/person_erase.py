"""Erase what the node keeps about a person."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from msgnode.console import persons
from msgnode.console.actor import actor
from msgnode.console.audit import note
from msgnode.console.command_base import Tool, could_not_be_done, not_as_it_should_be


class OfAPerson(Tool):
    """A command about what the node keeps of a person."""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("person", help="e-mail address, user name, user URL or GUID")
        parser.add_argument(
            "--issuer", default="", help="issuer, if the person is given as its subject"
        )

    def find(self, options: dict[str, Any]) -> tuple[persons.Names, dict[str, Any]]:
        """The person's names and what is kept under them; status 1 if nothing is."""
        names = persons.names_of(options["person"], options["issuer"])
        told = persons.export(names) if names else {}
        if not any(persons.count(told).values()):
            raise not_as_it_should_be("Nothing is kept under this name.")
        return names, told


class Command(OfAPerson):
    help = (
        "Erase the data that the node stores about a person: end the sessions; delete the account, "
        "registrations, decisions and addresses; remove the name from the audit log. This cannot "
        "be undone; run person_export first. Exit status 1 if no data are stored."
    )
    example = (
        "  manage.py person_erase alice@example.org --dry-run\n"
        "  manage.py person_erase alice@example.org --yes --json"
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
        parser.add_argument("--dry-run", action="store_true", help="only show what would be erased")

    def handle(self, *_args: Any, **options: Any) -> None:
        names, told = self.find(options)
        if any(person.is_superuser for person in names.accounts):
            raise could_not_be_done("This is a superuser. Remove the superuser status first.")
        if options["dry_run"]:
            self._say(persons.count(told))
            return
        if not options["yes"] and not self._is_confirmed():
            raise could_not_be_done("Nothing was erased.")
        persons.forget_deleted_rows()
        done = persons.erase(names, actor() or "person_erase")
        note(actor() or "person_erase", "person.erase", persons.ERASED, {}, done)
        if not persons.empty_the_log():
            self.stderr.write(
                "The write-ahead log of SQLite still has what was erased, because somebody reads "
                "the database. Stop the node, or give the command again."
            )
        self._say(done)

    def _is_confirmed(self) -> bool:
        try:
            return input("Erase this permanently? [yes/no] ").strip() == "yes"
        except EOFError:
            raise could_not_be_done(
                "Nothing was erased: there is no terminal to ask at. Give --yes to confirm."
            ) from None

    def _say(self, numbers: dict[str, int]) -> None:
        lines = (f"{kind.replace('_', ' '):<32} {each:,}" for kind, each in numbers.items())
        self.say(numbers, lines)
