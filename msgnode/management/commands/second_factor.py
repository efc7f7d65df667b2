"""The second factors of an account, for who has lost them: shown, and removed."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandParser

from msgnode.console.actor import actor
from msgnode.console.audit import note
from msgnode.console.command_base import Tool, not_as_it_should_be
from msgnode.identity import second_factor
from msgnode.identity.provider.revocation import end_browser_sessions


class Command(Tool):
    help = (
        "Show the second factors of an account. --remove takes all of them away and logs its "
        "browsers out: for who has lost app, passkeys and recovery codes. Whose role asks for a "
        "second factor sets up a new one at the next log-in."
    )
    example = "  manage.py second_factor operator\n  manage.py second_factor operator --remove"

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("account", help="its user name")
        parser.add_argument("--remove", action="store_true", help="take all of them away")

    def handle(self, *_args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["account"]).first()
        if user is None:
            raise not_as_it_should_be(f"There is no account {options['account']}.")
        factors = [second_factor.shown(each) for each in second_factor.factors_of(user)]
        removed = 0
        if options["remove"]:
            removed = second_factor.remove(user)
            end_browser_sessions(user)
            name = actor() or "second_factor"
            note(name, "second-factor.remove-all", user, {"number": removed}, {})
        lines = [f"{each['kind']}: {each['name']}" for each in factors]
        if options["remove"]:
            lines.append(f"{removed} removed, recovery codes included; browsers logged out.")
        self.say({"factors": factors, "removed": removed}, lines or ["There is none."])
