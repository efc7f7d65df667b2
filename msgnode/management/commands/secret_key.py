"""The key that encrypts secrets in the database: whether it opens them, and encrypting anew."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from msgnode.console.command_base import Tool, not_as_it_should_be
from msgnode.identity import sealed_secrets


class Command(Tool):
    help = (
        "Show whether the encrypted secrets in the database can be read with SECRET_KEY (or "
        "KEY_ENCRYPTION_KEY), and which need a former key. --encrypt-anew encrypts those with the "
        "current key, so that SECRET_KEY_FALLBACKS may go: run it once every process of the node "
        "has the new key. Exit status 1 if a secret cannot be read."
    )
    example = "  manage.py secret_key\n  manage.py secret_key --encrypt-anew"

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--encrypt-anew", action="store_true", help="encrypt with the current key"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        done = sealed_secrets.encrypt_anew() if options["encrypt_anew"] else 0
        columns = sealed_secrets.look()
        needed = sum(each.by_former_key for each in columns)
        lost = sum(each.unreadable for each in columns)
        may_go = not needed and not lost
        told = [asdict(each) for each in columns]
        lines = [
            f"{each.number:>7} {each.what}: {each.by_former_key} need a former key, "
            f"{each.unreadable} cannot be read"
            for each in columns
        ]
        if options["encrypt_anew"]:
            lines.append(f"{done} were encrypted with the current key.")
        if needed:
            lines.append(f"{needed} need a former key: --encrypt-anew encrypts them anew.")
        elif may_go and settings.SECRET_KEY_FALLBACKS:
            lines.append(
                "No secret needs SECRET_KEY_FALLBACKS: it may go. Log-ins of browsers that a "
                "former key has signed end then."
            )
        self.say({"secrets": told, "encrypted_anew": done, "fallbacks_may_go": may_go}, lines)
        if lost:
            raise not_as_it_should_be(
                f"{lost} secrets cannot be read: name the key they were encrypted with in "
                "SECRET_KEY_FALLBACKS, or enter them again (signing keys: manage.py provider_key "
                "--replace-now)."
            )
