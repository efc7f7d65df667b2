"""A catalogue on the loopback with one good stub and three hostile ones, for the Python runtime."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from msgnode.runtime.python.descriptor import digest_of

ECHO = """
import asyncio


class Echo:
    def __init__(self, url, bus, config):
        self.url, self.bus, self.is_live = url, bus, False
        bus.add_listener("*", self.send)
        self.say("created")

    def say(self, value):
        status = self.url + "/status"
        body = {"value": value}
        self.bus.post_message({"type": "update", "from": self.url, "to": status, "body": body})

    def send(self, message):
        if message["to"].endswith("/status"):
            return
        if not self.is_live:
            self.is_live = True
            self.say("live")
        self.misbehave()
        head = {"id": message["id"], "type": "response", "from": message["to"]}
        self.bus.post_message({**head, "to": message["from"], "body": {"code": 200}})

    def misbehave(self):
        pass


def activate(url, bus, config):
    return {"name": "Echo", "instance": Echo(url, bus, config)}
"""

HOSTILE = {
    "loops": "while True:\n            pass",
    "eats memory": "kept = [bytearray(1 << 20) for _ in range(4096)]",
    "floods": """self.task = asyncio.ensure_future(self.flood())

    async def flood(self):
        head = {"type": "update", "from": "hyperty://floods/x", "to": "hyperty://d/b"}
        while True:
            for _ in range(50):
                self.bus.post_message({**head, "body": {"value": 1}})
            await asyncio.sleep(0)""",
}


class StubCatalogue:
    """Serves `good` and the hostile ones by their names."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._entries = {"good": _entry(ECHO)}
        for name, deed in HOSTILE.items():
            source = ECHO.replace("        pass\n\n\ndef", f"        {deed}\n\n\ndef")
            self._entries[name.replace(" ", "-")] = _entry(source)

    async def __aenter__(self) -> StubCatalogue:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()

    def domains(self) -> dict[str, str]:
        """The catalogue of each domain, for the settings of a runtime."""
        if self._server is None:
            return {}
        port = self._server.sockets[0].getsockname()[1]
        names = ["d", *self._entries]
        return {name: f"http://127.0.0.1:{port}/{name}" for name in names}

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        name = head.split(" ")[1].split("/")[1]
        body = json.dumps(self._entries.get(name, {})).encode()
        status = "200 OK" if name in self._entries else "404 Not Found"
        lines = (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", "", "")
        writer.write("\r\n".join(lines).encode() + body)
        await writer.drain()
        writer.close()


def _entry(source: str) -> dict[str, Any]:
    return {
        "cguid": "1",
        "type": "PROTOSTUB",
        "version": "1.0",
        "objectName": "Echo",
        "language": "PYTHON",
        "sourcePackage": {"sourceCode": source, "integrity": digest_of(source)},
        "configuration": {},
        "constraints": {"python": True},
    }
