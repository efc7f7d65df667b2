"""A real prosody, with a gateway's component and users of tests, as docs/legacy.md has it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import slixmpp
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher import MatchXPath

from msgnode.launch.pdeathsig import tie
from msgnode.legacy.xmpp_stream import tag
from tests.client import LIMIT
from tests.ports import free_port
from tests.services import needs_program
from tests.waiting import until

from .fake_xmpp import DOMAIN, GATEWAY

DOCS = Path(__file__).resolve().parent.parent.parent / "docs" / "legacy.md"


def configuration() -> str:
    """The configuration of prosody that docs/legacy.md shows."""
    found = re.search(r"```lua\n(.*?)```", DOCS.read_text(), re.S)
    assert found is not None
    return found[1]


class Prosody:
    """A server in a directory of its own, on free ports.

    Args:
        place: the directory.
        users: those that are registered.
        more: lines of configuration, after those of the page.
    """

    def __init__(
        self, place: Path, users: tuple[str, ...] = ("bob", "carol"), more: str = ""
    ) -> None:
        needs_program("prosody")
        self.client_port, self.component_port = free_port(), free_port()
        self._place = place
        place.mkdir(parents=True, exist_ok=True)
        self._config = place / "prosody.cfg.lua"
        self._config.write_text(self._lines() + configuration() + more)
        for user in users:
            self._control("register", user, DOMAIN, "pw")
        self._process: subprocess.Popen[bytes] | None = None

    def _lines(self) -> str:
        """What a test needs beside that: no TLS, no other servers, ports and files of its own."""
        return f"""
run_as_root = true
pidfile = "{self._place}/prosody.pid"
data_path = "{self._place}/data"
certificates = "{self._place}"
log = {{ warn = "{self._place}/log" }}
modules_disabled = {{ "s2s", "tls" }}
c2s_ports = {{ {self.client_port} }}
s2s_ports = {{}}
http_ports = {{}}
https_ports = {{}}
c2s_require_encryption = false
allow_unencrypted_plain_auth = true
component_ports = {{ {self.component_port} }}
"""

    def _control(self, *words: str) -> None:
        (self._place / "data").mkdir(exist_ok=True)
        command = ["prosodyctl", "--root", "--config", str(self._config), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> Prosody:
        with (self._place / "said").open("ab") as said:
            self._process = subprocess.Popen(
                ["prosody", "--root", "-F", "--config", str(self._config)],
                stdout=said, stderr=said, preexec_fn=lambda: tie(signal.SIGKILL),
            )  # fmt: skip

        def answers() -> bool:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.client_port), 1):
                return True
            return False

        until(answers, LIMIT, (self._place / "said").read_text, every=0.02)
        return self

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def stop(self, number: int = signal.SIGKILL) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(LIMIT)


@contextmanager
def prosody(place: Path, *users: str, more: str = "") -> Iterator[Prosody]:
    server = Prosody(place, users or ("bob", "carol"), more)
    try:
        yield server.start()
    finally:
        with suppress(ProcessLookupError):
            server.send_signal(signal.SIGCONT)
        server.stop()
        shutil.rmtree(place, ignore_errors=True)


class User(slixmpp.ClientXMPP):
    """A user at the server, whose messages are kept in order."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(f"{name}@{DOMAIN}/phone", "pw")
        self._port = port
        self.enable_starttls = self.enable_direct_tls = False
        self.enable_plaintext = True
        self.taken: list[Any] = []
        self.receipts: list[Any] = []
        self.plugin["feature_mechanisms"].unencrypted_plain = True
        self.roster.auto_subscribe = self.roster.auto_authorize = True
        self.add_event_handler("message", self.taken.append)
        self.add_event_handler("message_error", self.taken.append)
        self.jingles: list[Any] = []
        jingle = MatchXPath("{jabber:client}iq/{urn:xmpp:jingle:1}jingle")
        self.register_handler(Callback("jingle", jingle, self._took_jingle))
        proposal = MatchXPath("{jabber:client}message/{urn:xmpp:jingle-message:0}propose")
        self.register_handler(Callback("proposal", proposal, self._proceed))
        receipt = MatchXPath("{jabber:client}message/{urn:xmpp:receipts}received")
        self.register_handler(Callback("receipts", receipt, self.receipts.append))
        self.add_event_handler("groupchat_message", self.taken.append)
        self.online = asyncio.Event()
        self._is_leaving = self._comes_back = False
        self.add_event_handler("disconnected", self._come_back)
        self.add_event_handler("session_start", self._begun)

    async def _come_back(self, _: Any) -> None:
        """Connect again, as clients do when the server was away.

        One connection at a time, however long it takes to log in: all that this client has share
        one parser, and the server takes the session from the older one, with what was sent there.
        """
        self.online.clear()
        if self._comes_back:
            return
        self._comes_back = True
        while not self._is_leaving and not self.online.is_set():
            if not self.is_connected():
                self.connect("127.0.0.1", self._port)
            with suppress(TimeoutError):
                async with asyncio.timeout(2.0):
                    await self.online.wait()
        self._comes_back = False

    def _took_jingle(self, iq: Any) -> None:
        iq.reply().send()
        self.jingles.append(iq)

    def _proceed(self, message: Any) -> None:
        """Want to be called."""
        for each in message.xml:
            if each.tag.endswith("propose"):
                reply = self.make_message(message["from"], mtype="chat")
                said = each.tag.replace("propose", "proceed")
                reply.append(Xml.Element(said, {"id": each.get("id")}))
                reply.send()

    def jingle(self, action: str, to: str, sid: str, *inside: str) -> None:
        """Say something about a call."""
        iq = self.make_iq_set(ito=to)
        made = tag("jingle", {"xmlns": "urn:xmpp:jingle:1", "action": action, "sid": sid}, *inside)
        iq.append(Xml.fromstring(made))  # noqa: S314  (made here)
        iq.send()

    async def action(self, name: str) -> Any:
        """The Jingle element of an action that he was sent, and the message that it came in."""

        def find(_: Any) -> Any:
            for iq in self.jingles:
                found = iq.xml.find("{urn:xmpp:jingle:1}jingle")
                if found.get("action") == name:
                    return found, iq
            return None

        return await self.until(find)

    def enter(self, room: str, name: str) -> None:
        """Join a room; it is created if there is none."""
        presence = self.make_presence(pto=f"{room}/{name}")
        presence.append(Xml.Element("{http://jabber.org/protocol/muc}x"))
        presence.send()

    def rule(self, room: str, what: str, inside: str = "") -> None:
        """Use the rights of who has created a room: muc#admin or muc#owner."""
        iq = self.make_iq_set(ito=room)
        query = tag("query", {"xmlns": f"http://jabber.org/protocol/{what}"}, inside)
        iq.append(Xml.fromstring(query))  # noqa: S314  (made here)
        iq.send()

    def leave(self) -> None:
        """Go, and do not come back."""
        self._is_leaving = True
        self.abort()

    async def _begun(self, _: Any) -> None:
        self.send_presence()
        await self.get_roster()
        self.online.set()

    async def come(self) -> User:
        self.connect("127.0.0.1", self._port)
        async with asyncio.timeout(LIMIT):
            await self.online.wait()
        return self

    def write(
        self, text: str, to: str = "alice%a.example", asks: bool = False, **more: Any
    ) -> None:
        """Send a message; `asks`: for a receipt."""
        message = self.make_message(f"{to}@{GATEWAY}", text, mtype="chat")
        for name, value in more.items():
            message[name] = value
        if asks:
            message.append(Xml.Element("{urn:xmpp:receipts}request"))
        message.send()

    @property
    def texts(self) -> list[str]:
        return [each["body"] for each in self.taken if each["type"] == "chat" and each["body"]]

    def said_in(self, room: str) -> list[str]:
        """What everybody has written in a room."""
        of = [each for each in self.taken if each["type"] == "groupchat"]
        return [each["body"] for each in of if each["body"] and each["from"].bare == room]

    async def until(self, condition: Any, seconds: float = LIMIT) -> Any:
        async with asyncio.timeout(seconds):
            while not (found := condition(self)):  # noqa: ASYNC110  (a test's condition)
                await asyncio.sleep(0.02)
        return found


@asynccontextmanager
async def user(server: Prosody, name: str = "bob") -> AsyncIterator[User]:
    each = User(name, server.client_port)
    try:
        yield await each.come()
    finally:
        each.leave()
