"""A Python runtime with direct connections as a process: the other end for pages.

Usage: p2p_talker.py OPTIONS
OPTIONS are JSON: domain, catalogues; `timers` in seconds; `relay`, the only ICE server and way;
`identity`, to log in with; `runtimeURL`.
Writes a line of JSON {url, runtimeURL, handler}. Reads lines {do, with} and answers each with
{result}; what can be done is what `p2p.mjs` can.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import aioice.ice

from msgnode.runtime.python import Runtime, Settings
from msgnode.runtime.python.messages import Message, body_of
from msgnode.runtime.python.p2p.settings import P2PSettings, P2PTimers


class Talker:
    """The hyperty of the runtime; its public methods are the commands."""

    def __init__(self, runtime: Runtime) -> None:
        assert runtime.p2p is not None
        self._runtime = runtime
        self._p2p = runtime.p2p
        self._url = f"{runtime.url}/app"
        self._numbers: list[int] = []
        self._by_channel = 0
        self._states: list[tuple[str, str, float]] = []
        self._said = 0
        self._saying: asyncio.Task[None] | None = None
        runtime.bus.add_listener(self._url, self._take)
        runtime.bus.add_listener(f"{runtime.url}/status", self._told)

    def named(self) -> dict[str, str]:
        return {
            "url": self._url,
            "runtimeURL": self._runtime.url,
            "handler": self._p2p.handler,
        }

    async def ask(self, to: str, value: Any, named: dict[str, Any] | None = None) -> Any:
        message = {"type": "create", "from": self._url, "to": to}
        began = time.perf_counter()
        body = {"value": value, **(named or {})}
        answer = body_of(await self._runtime.bus.request({**message, "body": body}, 60))
        took = (time.perf_counter() - began) * 1000
        return {"value": answer.get("value"), "cameBy": answer.get("cameBy"), "took": took}

    async def hyperty(self, name: str) -> str:
        handlers = {"*": lambda value, message: [name, value]}
        return (await self._runtime.hyperty(name, handlers=handlers)).url

    async def askInTurn(
        self, every: list[list[str]], count: int, seconds: float, register: bool = True
    ) -> Any:
        me = await self._runtime.hyperty("asker", register=register, p2p=register)
        wrong: list[Any] = []
        ways: dict[str, int] = {}
        began = time.perf_counter()
        for number in range(count):
            name, address = every[number % len(every)]
            due = began + seconds * number / count - time.perf_counter()
            await asyncio.sleep(max(0.0, due))  # the pace, not a wait for anything
            way = self._runtime.explain(address, me.url).way
            ways[way] = ways.get(way, 0) + 1
            said: Any
            try:
                said = await me.request(address, number)
            except Exception as error:
                said = str(error)
            if said != [name, number]:
                wrong.append([number, name, said])
        return {"wrong": wrong, "ways": ways, "took": (time.perf_counter() - began) * 1000}

    async def start(self, to: str) -> None:
        self._saying = asyncio.create_task(self._say(to))

    async def stop(self) -> int:
        assert self._saying is not None
        self._saying.cancel()
        return self._said

    async def heard(self) -> dict[str, Any]:
        is_in_order = self._numbers == list(range(len(self._numbers)))
        return {
            "count": len(self._numbers),
            "isInOrder": is_in_order,
            "byChannel": self._by_channel,
        }

    async def states(self) -> list[tuple[str, str, float]]:
        return self._states

    async def way(self, other: str) -> str:
        peer = self._p2p.known.get(other)
        return str(peer.link.way) if peer else "node"

    async def resent(self, other: str) -> int:
        peer = self._p2p.known.get(other)
        return peer.link.resent if peer else 0

    async def bye(self, other: str, reason: str) -> None:
        self._p2p.known[other].bye(reason)

    async def cut(self) -> None:
        """Every frame vanishes from now on, in both directions, and nobody is told."""
        for peer in self._p2p.known.values():
            rtc = peer._rtc
            if rtc is not None:
                rtc.send = lambda frame: None  # type: ignore[method-assign]
                rtc.on_frame = lambda frame: None

    async def _say(self, to: str) -> None:
        while True:
            for _ in range(5):
                message = {"type": "update", "from": self._url, "to": to}
                self._runtime.bus.post_message({**message, "body": {"value": self._said}})
                self._said += 1
            await asyncio.sleep(0.01)  # the pace of a talk, not a wait for anything

    def _take(self, message: Message) -> None:
        body = body_of(message)
        if message["type"] == "response":
            return
        self._by_channel += "/p2prequester/" in str(body.get("via"))
        if message["type"] == "update":
            self._numbers.append(body["value"])
        else:
            head = {"id": message["id"], "type": "response", "from": self._url}
            answer = {"code": 200, "value": body["value"], "cameBy": body.get("via")}
            self._runtime.bus.post_message({**head, "to": message["from"], "body": answer})

    def _told(self, message: Message) -> None:
        body = body_of(message)
        if body.get("peer"):
            self._states.append((body["peer"], body["value"], time.perf_counter() * 1000))


async def main() -> None:
    options = json.loads(sys.argv[1])
    aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]
    timers, relay = P2PTimers(**options.pop("timers", {})), options.pop("relay", None)
    identity, url = options.pop("identity", None), options.pop("runtimeURL", "")
    p2p = P2PSettings(ice_servers=(relay,) if relay else (), relay_only=bool(relay), timers=timers)
    settings = Settings(home_in_process=True, p2p=p2p, **options)
    async with Runtime(settings, url=url) as runtime:
        assert await runtime.log_in(identity) == "live"
        talker = Talker(runtime)
        print(json.dumps(talker.named()), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            order = json.loads(line)
            result = await getattr(talker, order["do"])(*order["with"])
            print(json.dumps({"result": result}), flush=True)


asyncio.run(main())
