"""`manage.py first_conversation`: two runtimes talk through a running node, frame by frame."""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from msgnode.launch import readiness
from msgnode.launch.readiness import Address, read_address
from msgnode.sessions.credentials import bearer

PATIENCE = 10.0  # seconds to wait for a frame


class Command(BaseCommand):
    help = (
        "Open two sessions on a running node, allocate an address, subscribe, send and receive, "
        "and show every frame. Example: manage.py first_conversation --url ws://127.0.0.1:8000/ws"
    )

    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--url",
            default="",
            help="the node's endpoint; without it PORT and HOST of the environment say where, "
            "else the node that runs in DATA_DIR",
        )
        parser.add_argument("--domain", default="", help="the node's domain, else found likewise")
        parser.add_argument("--token", default="", help="access token, if the node requires one")

    def handle(self, *args: Any, **options: Any) -> None:
        there = self._address()
        url = options["url"] or f"ws://{there.place}/ws"
        self.domain = options["domain"] or there.domain
        try:
            with ExitStack() as stack:
                who = bearer(options["token"])
                sockets = [
                    stack.enter_context(connect(url, open_timeout=PATIENCE, additional_headers=who))
                    for _ in range(2)
                ]
                self._converse(*(Runtime(*each, self) for each in zip(NAMES, sockets, strict=True)))
        except _NobodyReads:
            # Python would write what is left at its end, and complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except (OSError, TimeoutError, WebSocketException) as error:
            raise CommandError(f"No conversation with the node at {url}: {error}") from error

    def _address(self) -> Address:
        """Where the node is: as the environment says, else as the node in DATA_DIR says."""
        running = read_address(settings.DATA_DIR)
        host = readiness.in_url(readiness.reachable(settings.HOST))
        named = Address(f"{host}:{settings.PORT}", settings.DOMAIN)
        is_named = "PORT" in os.environ or "HOST" in os.environ
        return named if is_named or running is None else running

    def _converse(self, alice: Runtime, bob: Runtime) -> None:
        node = f"domain://msg-node.{self.domain}"
        self.title("Alice and Bob open a session each; with the token they can resume it.")
        for runtime in (alice, bob):
            runtime.ask("open", "mn:/session", sender=runtime.url)
        self.title("Alice gets an address for her data object.")
        allocated = alice.ask(
            "create",
            f"{node}/address-allocation",
            {"scheme": "comm", "value": {"number": 1}},
        )
        address = allocated["body"]["value"]["allocated"][0]
        self.title("Bob subscribes to the changes of the object.")
        bob.ask("subscribe", f"{node}/sm", {"resources": [f"{address}/changes"]})
        self.title("Alice changes the object: she is its reporter, Bob an observer.")
        change = {"value": "hello Bob"}
        alice.send("update", f"{address}/changes", change, sender=address)
        bob.receive()
        self.title("Bob sends a request to Alice's object, and her runtime answers.")
        bob.send("read", address)
        question = alice.receive()
        alice.send(
            "response",
            question["from"],
            {"code": 200, "value": "hello Bob"},
            address,
            question["id"],
        )
        bob.receive()
        self.title("Nobody listens to this address, so the node answers with an error.")
        bob.ask("read", f"comm://{self.domain}/nobody")
        self.title("They close their sessions; their addresses and subscriptions are free again.")
        for runtime in (alice, bob):
            runtime.ask("close", "mn:/session", sender=runtime.url)

    def title(self, text: str) -> None:
        self.show(f"\n# {text}")

    def show(self, line: str) -> None:
        """Print a line. Raises _NobodyReads if the output was closed (`| head`)."""
        try:
            self.stdout.write(line)
            self.stdout.flush()
        except BrokenPipeError:
            raise _NobodyReads from None


class _NobodyReads(Exception):
    """Whoever read the output has gone."""


NAMES = ("alice", "bob")


class Runtime:
    """One end of the conversation: sends and shows frames."""

    def __init__(self, name: str, socket: ClientConnection, command: Command) -> None:
        self.url = f"runtime://{command.domain}/{name}"
        self._name = name
        self._socket = socket
        self._command = command
        self._last_id = 0

    def ask(
        self, type_: str, to: str, body: dict[str, Any] | None = None, sender: str = ""
    ) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        self.send(type_, to, body, sender)
        return self.receive()

    def send(
        self,
        type_: str,
        to: str,
        body: dict[str, Any] | None = None,
        sender: str = "",
        id_: int = 0,
    ) -> None:
        self._last_id += not id_
        message: dict[str, Any] = {
            "id": id_ or self._last_id,
            "type": type_,
            "from": sender or f"{self.url}/sm",
            "to": to,
        }
        if body is not None:
            message["body"] = body
        frame = json.dumps(message, separators=(",", ":"))
        self._socket.send(frame)
        self._command.show(f"{self._name} > {frame}")

    def receive(self) -> dict[str, Any]:
        frame = self._socket.recv(timeout=PATIENCE)
        self._command.show(f"{self._name} < {frame!s}")
        message: dict[str, Any] = json.loads(frame)
        return message
