"""A node of one worker with policies, and runtimes that speak to it, over real sockets."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests import fork_server
from tests.e2e.launched import ROOT, Launched
from tests.services import free_port

PATIENCE = 30.0
DOMAIN = "localhost"
MANAGER = f"domain://msg-node.{DOMAIN}/sm"


class PolicedNode:
    """A running worker; `publish` is what an operator would do on the command line."""

    def __init__(self, process: Launched, sockets: ExitStack, **environment: str) -> None:
        self.process = process
        self.sockets = sockets
        self.environment = environment
        self.url = f"ws://127.0.0.1:{process.port}/ws"

    def manage(self, *arguments: str, text: str = "") -> str:
        """Run a command against the node's database; its output."""
        environment = _clean(self.environment)
        done = fork_server.run(["manage.py", *arguments], ROOT, environment, 60, text)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def publish(self, document: list[Any], mode: str = "enforce") -> int:
        """Publish a document in place of all others and wait until it is in force; its number."""
        said = self.manage(
            *("policy_import", "-", "--replace", "--mode", mode, "--publish"),
            text=json.dumps(document),
        )
        number = int(said.split("Version ")[1].split()[0])
        self.process.line_with(f"Policies of version {number} are in force", PATIENCE)
        return number


class Runtime:
    """A runtime with an open session."""

    def __init__(self, node: PolicedNode, name: str) -> None:
        self.url = f"runtime://{DOMAIN}/{name}"
        socket_ = connect(node.url, open_timeout=PATIENCE, ping_interval=None, max_queue=None)
        self.socket: ClientConnection = node.sockets.enter_context(socket_)
        self._id = 0
        self.waiting: list[dict[str, Any]] = []
        self.opened = self.ask("open", "mn:/session", sender=self.url)

    def send(self, type_: str, to: Any, body: Any = None, sender: str = "") -> int:
        """Send a message; its id."""
        self._id += 1
        message = {"id": self._id, "type": type_, "from": sender or f"{self.url}/x", "to": to}
        self.socket.send(json.dumps({**message, "body": body or {}}))
        return self._id

    def ask(self, type_: str, to: Any, body: Any = None, sender: str = "") -> dict[str, Any]:
        """Send a message; the response to it."""
        id_ = self.send(type_, to, body, sender)
        return self.receive(lambda m: m["type"] == "response" and m.get("id") == id_)

    def receive(self, wanted: Any = lambda _: True) -> dict[str, Any]:
        """The next message that is wanted; others wait."""
        for message in self.waiting:
            if wanted(message):
                self.waiting.remove(message)
                return message
        while True:
            message = json.loads(self.socket.recv(timeout=PATIENCE))
            if wanted(message):
                return message
            self.waiting.append(message)

    def settle(self) -> None:
        """Return when the node has done with everything this runtime sent."""
        self.ask("read", f"hyperty://{DOMAIN}/nobody")

    def hears(self, *senders: Runtime) -> list[dict[str, Any]]:
        """Everything that has come, once the node has done with what the senders sent."""
        for runtime in (*senders, self):
            runtime.settle()
        heard, self.waiting = self.waiting, []
        return heard


@contextmanager
def policed_node(template: Path, **settings: str) -> Iterator[PolicedNode]:
    """A node of its own. `template` is a migrated database, which is copied."""
    with tempfile.TemporaryDirectory(prefix="policed-") as folder:
        data_dir, port = Path(folder), free_port()
        environment = {"DATA_DIR": folder, "PORT": str(port), "DOMAIN": DOMAIN, **settings}
        command = (sys.executable, "-m", "msgnode.servers.main")
        shutil.copy(template, data_dir / "node.sqlite3")
        with Launched(data_dir, port, command, {"DOMAIN": DOMAIN, **settings}) as process:
            process.line_with("The worker is ready")
            _wait_for_port(port)
            with ExitStack() as sockets:
                yield PolicedNode(process, sockets, **environment)


_DROPPED = ("DJANGO_SETTINGS_MODULE", "DATABASE_URL", "REDIS_URL", "NODE_MODE", "SECRET_KEY")


def _clean(environment: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    return {**kept, **environment}


def _wait_for_port(port: int) -> None:
    limit = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > limit:
                raise
            time.sleep(0.05)
