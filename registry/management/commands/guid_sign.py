"""`manage.py guid_sign`: a signed record for the global registry, written out or stored."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from msgnode.core.errors import NodeError
from registry import api
from registry.global_registry import guids, signed
from registry.records import stamp


class Command(BaseCommand):
    help = (
        "Sign a record of the global registry with a private key and write the JWT. "
        "Example: manage.py guid_sign --key alice.pem --salt <salt> "
        "--user-id user://example.com/alice --domain example.com --store"
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--key", required=True, help="file with the private key (PEM)")
        parser.add_argument("--salt", required=True, help="the salt guid_create printed")
        parser.add_argument("--user-id", action="append", default=[], help="may be repeated")
        parser.add_argument("--domain", default="", help="domain that serves the user ids")
        parser.add_argument("--days", type=int, default=3650, help="days until the record expires")
        parser.add_argument("--revoke", action="store_true", help="end the GUID permanently")
        parser.add_argument("--store", action="store_true", help="store it in this registry")

    def handle(self, *args: Any, **options: Any) -> None:
        key = _load(Path(options["key"]))
        public = signed.public_text(key)
        guid = guids.derive(public, options["salt"])
        now = timezone.now()
        record = {
            "schemaVersion": 1,
            "guid": guid,
            "salt": options["salt"],
            "userIDs": [{"uid": u, "domain": options["domain"]} for u in options["user_id"]],
            "lastUpdate": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "timeout": stamp(now + timedelta(days=options["days"])),
            "publicKey": public,
            "active": 0 if options["revoke"] else 1,
            "revoked": int(options["revoke"]),
            "defaults": {"voice": "", "chat": "", "video": ""},
            "legacyIDs": [],
        }
        jwt = signed.sign(record, key)
        if options["store"]:
            try:
                api.global_put(guid, jwt)
            except NodeError as error:
                raise CommandError(f"{error.code} {error.description}") from None
        self.stdout.write(jwt)


def _load(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise CommandError(f"There is no usable private key in {path}: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256k1":
        raise CommandError(f"The key in {path} is not on secp256k1.")
    return key
