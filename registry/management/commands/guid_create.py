"""`manage.py guid_create`: a new key pair, its salt and the GUID that follows from them."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from django.core.management.base import BaseCommand, CommandError, CommandParser

from registry.global_registry import guids, signed


class Command(BaseCommand):
    help = (
        "Create a key pair on secp256k1, a salt and their GUID. The private key goes to a new "
        "file that only you can read. Example: manage.py guid_create --out alice.pem --json"
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--out", required=True, help="file for the private key; must not exist")
        parser.add_argument("--salt", default="", help="the salt; generated if not given")
        parser.add_argument("--json", action="store_true", help="write the result as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        key = ec.generate_private_key(ec.SECP256K1())
        salt = options["salt"] or _salt()
        public = signed.public_text(key)
        result = {"guid": guids.derive(public, salt), "salt": salt, "publicKey": public}
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        path = Path(options["out"])
        try:
            path.touch(mode=0o600, exist_ok=False)
            path.write_bytes(pem)
        except OSError as error:
            raise CommandError(f"The key cannot be written to {path}: {error.strerror}.") from None
        if options["json"]:
            self.stdout.write(json.dumps(result | {"privateKey": str(path)}))
        else:
            for name, value in result.items():
                self.stdout.write(f"{name:10} {value}")


def _salt() -> str:
    """A salt as clients make it: base64 of a hash of something random."""
    return base64.b64encode(hashlib.sha256(secrets.token_bytes(32)).digest()).decode()
