"""API keys: list them, give one a new secret."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.db import transaction

from msgnode.console.command_base import Tool, could_not_be_done
from msgnode.models import ApiKey


class Command(Tool):
    help = (
        "List the API keys, without their secrets. --rotate gives one a new secret, and shows it "
        "this once; the former one works for another 24 hours. Keys are made in the console."
    )
    example = "  manage.py api_key\n  manage.py api_key --rotate backup-program"

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--rotate", default="", metavar="NAME", help="give it a new secret")

    def handle(self, *_args: Any, **options: Any) -> None:
        if name := options["rotate"]:
            text = self._rotate(name)
            self.say({"name": name, "key": text}, [text])
            return
        names = ("name", "prefix", "scopes", "is_active", "expires_at", "previous_until")
        keys = list(ApiKey.objects.order_by("name").values(*names))
        self.say(keys, map(_line, keys))

    @transaction.atomic  # the row stays locked until it has its new secret
    def _rotate(self, name: str) -> str:
        from msgnode.console.actor import actor  # slow to load, and not needed for the help
        from msgnode.console.audit import note
        from msgnode.identity import api_keys

        key = ApiKey.objects.select_for_update().filter(name=name).first()
        if key is None:
            raise could_not_be_done(f"There is no API key {name}.")
        text = api_keys.rotate(key)
        note(actor() or "api_key", "apikey.rotate", name, {}, {"secret": "new"})
        return text


def _line(key: dict[str, Any]) -> str:
    state = "" if key["is_active"] else "  off"
    return f"{key['prefix']:<10} until {key['expires_at']:%F}{state}  {key['name']}"
