"""A world for the tests of resolving: a catalogue that answers as a test says, stubs as text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from msgnode.runtime.python.descriptor import digest_of
from msgnode.runtime.python.faults import Fault
from msgnode.runtime.python.message_bus import MessageBus
from msgnode.runtime.python.messages import Message
from msgnode.runtime.python.minibus import MiniBus
from msgnode.runtime.python.resolver import Resolver
from msgnode.runtime.python.settings import Settings

R = "runtime://d/1"
A = "hyperty://d/a"
FAR = "hyperty://f/x"
SECONDS = 20.0

# What a stub of these tests does: it answers each message with its text, until told otherwise.
ECHO = """
class Echo:
    state = "created"

    def __init__(self, url, bus, config):
        self.url, self.bus, self.config = url, bus, config
        bus.add_listener("*", self.send)
        self.say("created")

    def say(self, value, **more):
        status = self.url + "/status"
        body = {"value": value, **more}
        self.bus.post_message({"type": "update", "from": self.url, "to": status, "body": body})

    def send(self, message):
        if message["to"].endswith("/status"):
            return
        if self.state == "created":
            self.state = "live"
            self.say("in-progress")
            self.say("live")
        if message["type"] != "response":
            self.answer(message, {"code": 200, "value": message.get("body", {}).get("value")})

    def answer(self, message, body):
        head = {"id": message["id"], "type": "response", "from": message["to"]}
        self.bus.post_message({**head, "to": message["from"], "body": body})

    async def connect(self, identity=None):
        self.say("live", identity=identity)

    async def disconnect(self):
        self.say("disconnected")


def activate(url, bus, config):
    return {"name": "Echo", "instance": Echo(url, bus, config)}
"""


def descriptor(source: str = ECHO, **changed: Any) -> dict[str, Any]:
    """A catalogue's entry for a source; `changed` replaces fields, None takes one away."""
    entry = {
        "cguid": "1",
        "type": "PROTOSTUB",
        "version": "1.0",
        "objectName": "Echo",
        "language": "PYTHON",
        "sourcePackageURL": "/sourcePackage",
        "sourcePackage": {
            "encoding": "utf-8",
            "sourceCodeClassname": "Echo",
            "sourceCode": source,
            "integrity": digest_of(source),
            "signature": "",
        },
        "configuration": {},
        "constraints": {"python": True, "ws": True, "wss": True},
        **changed,
    }
    return {name: value for name, value in entry.items() if value is not None}


class Puppet:
    """A stub that does what a test says."""

    started: list[Puppet] = []
    way = ""
    """What stubs do by themselves: answer, or loop."""

    def __init__(self, url: str, bus: MiniBus, config: dict[str, Any]) -> None:
        self.url, self.bus, self.config = url, bus, config
        self.sent: list[Message] = []
        self.calls: list[list[Any]] = []
        self.read = 0  # of what was sent
        bus.add_listener("*", self._take)
        self.started.append(self)
        self.say("created")

    def say(self, value: str, desc: str = "") -> None:
        body = {"value": value, "desc": desc}
        status = f"{self.url}/status"
        self.bus.post_message({"type": "update", "from": self.url, "to": status, "body": body})

    def _take(self, message: Message) -> None:
        head = {"id": message["id"], "type": "response", "from": message["to"]}
        head["to"] = message["from"]
        if message["to"].startswith("domain://idm."):
            self.bus.post_message({**head, "body": {"code": 404}})
            return
        self.sent.append(message)
        if self.way == "loop":
            self.bus.post_message({**message})
        elif self.way and message["type"] != "response":
            self.bus.post_message({**head, "body": {"code": 200}})

    async def connect(self, *identity: Any) -> None:
        self.calls.append(["connect", *(each for each in identity if each is not None)])
        self.say("in-progress")
        self.say("live")

    async def disconnect(self) -> None:
        self.calls.append(["disconnect"])
        self.say("disconnected")


class SlowPuppet(Puppet):
    """One that takes its time to connect."""

    async def connect(self, *identity: Any) -> None:
        self.calls.append(["connect"])
        await asyncio.sleep(60)


Answer = dict[str, Any] | tuple[int, dict[str, str], bytes] | None


class FakeCatalogue:
    """An HTTP server on the loopback. `entries[path]` is a descriptor, an answer (status, headers,
    body), None for 404, or missing for 404; `hangs` holds all answers back, `held` those of a
    domain until its event."""

    def __init__(self) -> None:
        self.entries: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.hangs = False
        self.held: dict[str, asyncio.Event] = {}
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> FakeCatalogue:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._open:
            writer.close()

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}"

    def serve(self, entry: Answer, domain: str = "f", name: str = "default") -> None:
        """Have an entry for a domain."""
        self.entries[f"/{domain}/.well-known/protocolstub/{name}"] = entry

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, path, _ = head.split(" ", 2)
        self.asked.append(f"{method} {path}")
        if self.hangs:
            return
        if (held := self.held.get(path.split("/")[1])) is not None:
            await held.wait()
        entry = self.entries.get(path)
        status, headers, body = 200, {"Content-Type": "application/json"}, b"{}"
        if entry is None:
            status = 404
        elif isinstance(entry, tuple):
            status, headers, body = entry
        else:
            body = json.dumps(entry).encode()
        lines = [f"HTTP/1.1 {status} Answer", *(f"{n}: {v}" for n, v in headers.items())]
        lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
        writer.write("\r\n".join(lines).encode() + body)
        await writer.drain()
        writer.close()


class World:
    """A runtime's bus and resolver between the fake catalogue and a hyperty A."""

    def __init__(self, catalogue: FakeCatalogue, **settings: Any) -> None:
        self.catalogue = catalogue
        names = {domain: f"{catalogue.url}/{domain}" for domain in ("d", "f", "g", "aa.f", "a.f")}
        self.settings = Settings("d", **{"catalogues": names, **settings})
        self.bus = MessageBus(R)
        self.faults: list[Fault] = []
        self.bus.on_error(self.faults.append)
        self.resolver = Resolver(self.settings, self.bus)
        self.statuses: list[Message] = []
        self.bus.add_listener(f"{R}/status", self.statuses.append)

    async def __aenter__(self) -> World:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.resolver.close()
        await self.bus.close()

    async def ask(self, to: str = FAR, value: Any = None, sender: str = A) -> dict[str, Any]:
        """The body of the answer to a `create`."""
        asked = {"type": "create", "from": sender, "to": to, "body": {"value": value}}
        body: dict[str, Any] = (await self.bus.request(asked, SECONDS))["body"]
        return body

    def url(self, key: str = "f") -> str:
        """The URL of the stub of a domain."""
        entry = self.resolver.stubs.get(key)
        assert entry is not None
        return entry.url

    def words(self) -> list[str]:
        """The states that the runtime told of its stubs."""
        return [each["body"]["value"] for each in self.statuses]

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait for something, with a limit."""
        async with asyncio.timeout(SECONDS):
            while not holds():  # noqa: ASYNC110 (what is waited for has no event)
                await asyncio.sleep(0.01)
