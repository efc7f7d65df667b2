"""The embedded provider's signing keys: list them, publish a new one, replace one that leaked."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from msgnode.console.command_base import Tool, not_as_it_should_be
from msgnode.identity.encryption import opens
from msgnode.identity.provider import keys as provider_keys
from msgnode.models import ProviderKey


class Command(Tool):
    help = (
        "Show the signing keys of the embedded OpenID provider. --rotate publishes a new key, "
        "which is used for signing 15 minutes later. --replace-now creates a key "
        "that is used at once and removes all others: tokens signed with them are refused."
    )
    example = "  manage.py provider_key --rotate\n  manage.py provider_key --json"

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        choice = parser.add_mutually_exclusive_group()
        choice.add_argument("--rotate", action="store_true", help="publish a new key")
        choice.add_argument("--replace-now", action="store_true", help="use it if a key has leaked")

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["rotate"]:
            provider_keys.rotate()
        elif options["replace_now"]:
            provider_keys.replace_now()
        provider_keys.jwk_set()  # makes the first one
        rows = list(ProviderKey.objects.all())
        lost = [row.kid for row in rows if not opens(row.sealed)]
        states = provider_keys.states(rows) | dict.fromkeys(lost, "unreadable")
        told = [
            {
                "kid": row.kid,
                "state": states[row.kid],
                "signs_from": row.signs_from,
                "made_at": row.made_at,
            }
            for row in rows
        ]
        line = "{state:<10} {kid}  from {signs_from:%F %T}Z"
        self.say(told, (line.format(**key) for key in told))
        if lost:
            raise not_as_it_should_be(
                f"{len(lost)} keys were encrypted with another SECRET_KEY: name it in "
                "SECRET_KEY_FALLBACKS, or make a new key with --replace-now."
            )
