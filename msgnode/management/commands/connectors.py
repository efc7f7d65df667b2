"""Connectors that are scripts: list them, give one a script, decide about it."""

from __future__ import annotations

import json
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandParser

from msgnode.console import connector_actions
from msgnode.console.command_base import (
    Tool,
    could_not_be_done,
    not_as_it_should_be,
    read_file,
)
from msgnode.models import Connector
from msgnode.scripts.service import LIVE

_BY = "command line"
_SHOWN = ("port", "decision", "state", "found_digest", "approved_digest", "last_error")


class Command(Tool):
    help = (
        "List the connectors of this node that are scripts, or manage one: add a version of its "
        "script, set the value of a secret, approve a version, pause or resume the connector, "
        "start its script anew, list its versions, or remove it. A running node applies changes "
        "within seconds. A list exits with status 1 if a connector is approved but not live."
    )
    example = (
        "  manage.py connectors add domain-registry --script registry.js --origins "
        "https://api.example.org --secrets api-key=https://api.example.org\n"
        "  manage.py connectors secret domain-registry --name api-key --value-file key.txt\n"
        "  manage.py connectors approve domain-registry --digest 5f3a…"
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        actions = ("list", "add", "secret", "versions", *connector_actions.ACTIONS)
        parser.add_argument("action", nargs="?", choices=actions, default="list")
        parser.add_argument("port", nargs="?", choices=("", *Connector.Port.values), default="")
        parser.add_argument("--script", default="", help="add: file with the script")
        parser.add_argument(
            "--config", default="", help="add: its configuration, as JSON or a file with it"
        )
        parser.add_argument(
            "--origins", nargs="*", default=(), help="add: where it may send requests"
        )
        parser.add_argument(
            "--secrets", nargs="*", default=(),
            help="add: NAME=ORIGIN, the only place that a secret is sent to; NAME=* lets the "
            "script read it",
        )  # fmt: skip
        parser.add_argument("--name", default="", help="secret: its name")
        parser.add_argument("--value-file", default="", help="secret: file with its value")
        parser.add_argument(
            "--digest", default="", help="approve: of the version, or its beginning; the newest"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        action, port = options["action"], options["port"]
        if action == "list":
            self._list()
            return
        if not port:
            raise could_not_be_done(f"Which one? manage.py connectors {action} domain-registry")
        if action == "add":
            self._add(port, options)
            return
        connector = Connector.objects.filter(port=port).first()
        if connector is None:
            raise could_not_be_done(f"{port}: it has no script.")
        if action == "versions":
            self._versions(connector)
            return
        if action == "secret":
            value = read_file(options["value_file"], "--value-file").strip()
            done = connector_actions.set_secret(connector, options["name"], value, _BY)
        else:
            done = connector_actions.act(action, connector, _BY, options["digest"])
        self.stdout.write(done)

    def _add(self, port: str, options: dict[str, Any]) -> None:
        configuration = options["config"].strip()
        if configuration and not configuration.startswith("{"):
            configuration = read_file(configuration, "--config")
        try:
            values = {
                "source": read_file(options["script"], "--script"),
                "configuration": json.loads(configuration or "{}"),
                "origins": list(options["origins"]),
                "secrets": dict(each.split("=", 1) for each in options["secrets"]),
            }
            connector = connector_actions.add(port, values, _BY)
        except ValidationError as wrong:
            faults = (f"{name}: {' '.join(why)}" for name, why in wrong.message_dict.items())
            raise could_not_be_done(" ".join(faults)) from None
        except ValueError as wrong:
            raise could_not_be_done(f"--config or --secrets cannot be read: {wrong}") from None
        told = f"{port}: the script {connector.found_digest[:12]}"
        self.stdout.write(f"{told}; then: manage.py connectors approve {port}")

    def _versions(self, connector: Connector) -> None:
        names = ("digest", "found_at", "added_by", "origins", "secrets")
        found = list(connector.scripts.values(*names))
        lines = (
            f"{each['digest']} {each['found_at']:%Y-%m-%d %H:%M} {each['added_by']}"
            + (" approved" if each["digest"] == connector.approved_digest else "")
            for each in found
        )
        self.say(found, lines)

    def _list(self) -> None:
        found = list(Connector.objects.all())
        told = [{name: getattr(row, name) for name in _SHOWN} for row in found]
        self.say(told, map(_line, found))
        wrong = [
            row.port
            for row in found
            if row.decision == Connector.Decision.APPROVED and row.state != LIVE
        ]
        if wrong:
            raise not_as_it_should_be(f"Look at: {', '.join(wrong)}")


def _line(row: Connector) -> str:
    digest = (row.approved_digest or row.found_digest)[:12]
    word = connector_actions.decision_word(row)
    return f"{row.port:16} {word:20} {row.state or '-':10} {digest}  {row.last_error}"
