"""The secrets shared with the TURN servers: list them, rotate them."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from msgnode.console.command_base import Tool
from msgnode.qos import secret_store
from msgnode.qos.bookings import CREDENTIAL_SECONDS
from msgnode.qos.models import TurnSecret


class Command(Tool):
    help = (
        "List the secrets that the node shares with its TURN servers, without showing them. "
        "--rotate creates a new secret, which is used as soon as all servers have it. Credentials "
        "of the previous secret stay valid until they expire. No server needs a restart."
    )
    example = "  manage.py turn_secret --rotate\n  manage.py turn_secret --json"

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--rotate", action="store_true", help="create a new secret")

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["rotate"]:
            secret_store.rotate()
        secret_store.current(CREDENTIAL_SECONDS)
        told = [
            {"number": row.pk, "state": "counts" if place else "signs", "made_at": row.made_at}
            for place, row in enumerate(TurnSecret.objects.all())
        ]
        line = "{number:>6} {state:<7} {made_at:%F %T}Z"
        self.say(told, (line.format(**secret) for secret in told))
