"""A Python runtime as a process: its stub on a bus that a test reads and writes as lines of JSON.

Usage: runtime_process.py CONFIG     (JSON with stubURL and the stub's configuration)
Reads  {"post": message} · {"call": "connect" | "disconnect"}
Writes every message that reaches the bus, status events included; and when a call has ended,
       {"type": "done", "to": <call>}
"""

import asyncio
import json
import sys
from typing import Any

from msgnode.runtime.python.protostub import activate


class Bus:
    def __init__(self) -> None:
        self.outgoing: list[Any] = []

    def add_listener(self, address: str, listener: Any) -> None:
        assert address == "*"
        self.outgoing.append(listener)

    def post_message(self, message: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


async def main() -> None:
    config = json.loads(sys.argv[1])
    bus = Bus()
    stub = activate(config.pop("stubURL"), bus, config)["instance"]
    calls = set()

    async def call(name: str) -> None:
        await getattr(stub, name)()
        bus.post_message({"type": "done", "to": name})

    lines = asyncio.StreamReader(limit=16 * 1024 * 1024)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        command = json.loads(line)
        if "post" in command:
            for listener in bus.outgoing:
                listener(command["post"])
        else:
            calls.add(asyncio.create_task(call(command["call"])))


asyncio.run(main())
