"""Send one message through a running node, as a runtime would, and wait for the answer."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from msgnode.console.command_base import Tool, could_not_be_done, not_as_it_should_be
from msgnode.launch import readiness
from msgnode.sessions.credentials import bearer

SESSION = "mn:/session"
Frame = dict[str, Any]


class Command(Tool):
    help = (
        "Open a session, send one message, wait for the answer, close the session. Exit status 1 "
        "if the answer is an error, 2 if there is none."
    )
    example = (
        "  manage.py node_send domain://msg-node.localhost/address-allocation --type create \\\n"
        '      --body \'{"scheme": "hyperty", "value": {"number": 1}}\''
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("to", help="the address to send to")
        parser.add_argument("--type", default="read", help="message type (read)")
        parser.add_argument("--body", default="{}", help="body as a JSON object ({})")
        parser.add_argument(
            "--from", dest="sender", help="runtime URL of the sender (default: a new one)"
        )
        parser.add_argument("--url", help="the node's WebSocket (from HOST and PORT)")
        parser.add_argument("--token", default="", help="access token, if the node requires one")
        parser.add_argument("--wait", type=float, default=15.0, help="seconds to wait (15)")

    def handle(self, *_args: Any, **options: Any) -> None:
        message = _message(options)
        url = options["url"] or _own_url()
        try:
            with connect(
                url,
                open_timeout=options["wait"],
                max_size=None,
                proxy=None,
                additional_headers=bearer(options["token"]),
            ) as socket:
                answer = _conversation(socket, message, options)
        except (OSError, WebSocketException) as fault:
            raise could_not_be_done(f"{url}: {fault}") from None
        self._say(answer)

    def _say(self, answer: Frame) -> None:
        body = json.dumps(answer.get("body"), indent=2, ensure_ascii=False)
        self.say(answer, [f"from {answer.get('from')}", body])
        code = (answer.get("body") or {}).get("code", 200)
        if isinstance(code, int) and code >= 400:
            raise not_as_it_should_be(f"The answer is an error: {code}.")


def _message(options: dict[str, Any]) -> Frame:
    try:
        body = json.loads(options["body"])
    except ValueError as fault:
        raise could_not_be_done(f"--body is not JSON: {fault}") from None
    if not isinstance(body, dict):
        raise could_not_be_done("--body must be a JSON object.")
    sender = options["sender"] or f"runtime://{settings.DOMAIN}/node-send-{uuid.uuid4().hex[:12]}"
    return {
        "id": f"node-send-{uuid.uuid4().hex[:12]}",
        "type": options["type"],
        "from": sender,
        "to": options["to"],
        "body": body,
    }


def _own_url() -> str:
    """Where this node listens; one that listens everywhere is met on this machine."""
    host = readiness.in_url(readiness.reachable(settings.HOST))
    return f"ws://{host}:{settings.PORT}/ws"


def _conversation(socket: ClientConnection, message: Frame, options: Frame) -> Frame:
    opened = _ask(socket, {**message, "type": "open", "to": SESSION, "body": {}}, options["wait"])
    if opened["body"].get("code") != 200:
        raise could_not_be_done(f"The node opened no session: {opened['body']}")
    answer = _ask(socket, message, options["wait"])
    token = opened["body"]["runtimeToken"]
    sender = f"{message['from']}/{token}"
    socket.send(json.dumps({**message, "type": "close", "from": sender, "to": SESSION, "body": {}}))
    return answer


def _ask(socket: ClientConnection, message: Frame, seconds: float) -> Frame:
    """The response to a request, whatever else arrives before it."""
    socket.send(json.dumps(message))
    limit = time.monotonic() + seconds
    while True:
        try:
            frame = json.loads(socket.recv(timeout=max(0.0, limit - time.monotonic())))
        except TimeoutError:
            raise could_not_be_done(f"No answer within {seconds:g} seconds.") from None
        if frame.get("type") == "response" and frame.get("id") == message["id"]:
            answer: Frame = frame
            return answer
