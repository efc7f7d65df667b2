"""Secrets that the node shares with another server: list them, replace one while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.core.management.base import CommandParser
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from oauth2_provider.models import Application

from msgnode.console.command_base import Tool, could_not_be_done, read_file
from msgnode.identity.encryption import encrypt
from msgnode.identity.ports import ISSUERS_CHANGED
from msgnode.identity.provider.clients import rotate_secret
from msgnode.models import FormerClientSecret, Issuer, LegacyNetwork
from msgnode.qos.models import TurnServer
from msgnode.storage.control import post

_LENGTH = 500
_CLIENT = "client"


class Command(Tool):
    help = (
        "List the secrets of issuers, legacy networks, TURN servers' command lines and clients of "
        "the embedded provider, without showing them, or replace one; nothing needs a restart. "
        "What another server has set comes from a file (--value-file), and is used from then on. "
        "A client of the provider is given a new secret (--rotate), which is shown this once; "
        "the former one works for another 24 hours."
    )
    example = (
        "  manage.py secret\n"
        "  manage.py secret issuer Company --value-file new.txt\n"
        "  manage.py secret legacy-network sip.example --value-file new.txt\n"
        "  manage.py secret turn-server turn-1 --value-file new.txt\n"
        "  manage.py secret client 5mXjv2pLwQ --rotate"
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("kind", nargs="?", choices=("", *_KINDS), default="")
        parser.add_argument("name", nargs="?", default="", help="its name; of a client, its id")
        choice = parser.add_mutually_exclusive_group()
        choice.add_argument("--value-file", default="", help="file with what the server has set")
        choice.add_argument("--rotate", action="store_true", help="client: make a new one")

    def handle(self, *_args: Any, **options: Any) -> None:
        kind, name = options["kind"], options["name"]
        if not (options["rotate"] or options["value_file"]):
            self._list(kind, name)
            return
        if not name:
            raise could_not_be_done("Which one? manage.py secret lists them by kind and name.")
        if options["rotate"] and kind != _CLIENT:
            raise could_not_be_done(
                f"The {kind} decides about it: change it there, then give it with --value-file."
            )
        if options["value_file"] and kind == _CLIENT:
            raise could_not_be_done("The node makes the secrets of its clients: give --rotate.")
        value = "" if options["rotate"] else _read(options["value_file"])
        told = _replace(kind, name, value)
        new = {"secret": told} if kind == _CLIENT else {}
        self.say({"kind": kind, "name": name, **new}, [told])

    def _list(self, kind: str, name: str) -> None:
        told = [each for each in _listed(kind) if name in ("", each["name"])]
        if name and not told:
            raise could_not_be_done(f"There is no {kind} {name}.")
        none = f"There is no {kind}." if kind else "Nothing here has a secret."
        self.say(told, map(_line, told) if told else [none])


def _line(told: dict[str, Any]) -> str:
    until = told["former_valid_until"]
    former = f"  (the former one until {until:%F %T}Z)" if until else ""
    return f"{told['kind']:<15} {'set' if told['is_set'] else 'none':<5} {told['name']}{former}"


@transaction.atomic  # the row stays locked until it has its new secret
def _replace(kind: str, name: str, value: str) -> str:
    """Replace a secret; return the new one of a client, else what was done, as a sentence."""
    of = _KINDS[kind]
    row = of.rows().select_for_update().filter(**{of.name: name}).first()
    if row is None:
        raise could_not_be_done(f"There is no {kind} {name}: manage.py secret lists them.")
    if kind == _CLIENT:
        return rotate_secret(row)
    if why := of.replace(row, value):
        raise could_not_be_done(f"{name}: {why}")
    return f"{kind} {name}: the new secret is used from now on."


def _listed(kind: str) -> Iterator[dict[str, Any]]:
    valid = FormerClientSecret.objects.filter(valid_until__gt=timezone.now())
    former = dict(valid.values_list("client__client_id", "valid_until"))
    for each, of in _KINDS.items():
        for name, secret in of.rows().order_by(of.name).values_list(of.name, of.secret):
            if kind in ("", each):
                until = former.get(name) if each == _CLIENT else None
                yield {
                    "kind": each, "name": name, "is_set": bool(secret), "former_valid_until": until
                }  # fmt: skip


def _read(path: str) -> str:
    value = read_file(path, "--value-file").rstrip("\r\n")
    if not value or len(value) > _LENGTH or not value.isprintable():
        raise could_not_be_done(
            f"--value-file: it must have one line of 1 to {_LENGTH} characters, none of which is a "
            "control character."
        )
    return value


def _of_issuer(row: Issuer, value: str) -> str:
    row.client_secret = encrypt(value)
    row.save(update_fields=["client_secret", "changed_at"])
    post(ISSUERS_CHANGED)
    return ""


def _of_legacy_network(row: LegacyNetwork, value: str) -> str:
    from msgnode.legacy.rows import replace_secret  # loaded with the first network

    return replace_secret(row, value)


def _of_turn_server(row: TurnServer, value: str) -> str:
    row.sealed_password = encrypt(value)
    row.save(update_fields=["sealed_password"])  # read with each visit of the server
    return ""


@dataclass(frozen=True)
class _Kind:
    """Rows with a secret: which, their fields with name and secret, and how it is replaced."""

    rows: Callable[[], QuerySet[Any]]
    name: str
    secret: str
    replace: Callable[[Any, str], str] = lambda row, value: ""


_KINDS = {
    "issuer": _Kind(
        lambda: Issuer.objects.exclude(kind=Issuer.Kind.EMBEDDED),
        "name", "client_secret", _of_issuer,
    ),
    "legacy-network": _Kind(LegacyNetwork.objects.all, "domain", "sealed", _of_legacy_network),
    "turn-server": _Kind(TurnServer.objects.all, "name", "sealed_password", _of_turn_server),
    _CLIENT: _Kind(
        lambda: Application.objects.filter(client_type=Application.CLIENT_CONFIDENTIAL),
        "client_id", "client_secret",
    ),
}  # fmt: skip
