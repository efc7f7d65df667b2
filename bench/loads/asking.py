"""One runtime asks others at a steady rate, each request on its own; how long the answers take.

Those asked are at the same node, or at another one, whose port is given; the asker knows no
difference but the domain in their addresses.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any

import msgspec

from bench.wire import LoadSocket, message

from .clock import percentile

WAIT = 15.0
"""Seconds after the last request in which an answer is not lost."""


class AskingLoad:
    def __init__(self, port: int, server_pid: int) -> None:
        self._port = port
        self._asker: LoadSocket | None = None
        self._answerers: dict[tuple[int, str], LoadSocket] = {}
        self._number = 0
        self._asked: dict[str, float] = {}
        self._took: list[float] = []
        self._there: list[float] = []

    async def run(
        self, domains: list[str], own: str, node: str, port: int, rate: float, seconds: float
    ) -> dict[str, Any]:
        """Ask one runtime of each domain in turn, `rate` requests a second of all together.

        Args:
            domains: of those that are asked.
            own: domain of the asker's node.
            node: domain of the node that they are at.
            port: of that node.
            rate: requests a second.
            seconds: how long.

        Returns:
            Among others the p50 of request and answer, and of requests alone (`there_p50_ms`).
        """
        asker = await self._open(own)
        for domain in domains:
            await self._answerer(domain, node, port)
        self._took.clear()
        self._there.clear()
        pause, began = 1 / rate, perf_counter()
        for turn in range(int(rate * seconds)):
            at = began + turn * pause
            if (left := at - perf_counter()) > 0:
                await asyncio.sleep(left)
            self._number += 1
            id_ = f"r{self._number}"
            domain = domains[turn % len(domains)]
            sender, to = f"hyperty://{own}/asker/{domain}", f"hyperty://{domain}/answerer"
            self._asked[id_] = perf_counter()
            # one sender for each domain: at a node of several, each of its sessions has its own
            asker.transport.write(message(id=id_, type="read", from_=sender, to=to, body={"n": 1}))
        until = perf_counter() + WAIT
        while self._asked and perf_counter() < until:  # noqa: ASYNC110  (a dict tells nobody)
            await asyncio.sleep(0.02)
        lost = len(self._asked)
        self._asked.clear()
        took = sorted(1000 * each for each in self._took)
        if not took:
            raise ValueError("Nobody has answered.")
        return {
            "p50_ms": percentile(took, 0.5),
            "there_p50_ms": 1000 * percentile(sorted(self._there), 0.5),
            "p99_ms": percentile(took, 0.99),
            "bystander_worst_ms": took[-1],
            "lost": lost,
        }

    async def _open(self, own: str) -> LoadSocket:
        if self._asker is None:
            self._asker = await opened(self._port, own, "asker", own)
            self._asker.on_text = self._answered
        return self._asker

    async def _answerer(self, domain: str, node: str, port: int) -> None:
        if (port, domain) in self._answerers:
            return
        socket = self._answerers[port, domain] = await opened(port, domain, "answerer", node)

        def answer(text: bytes) -> None:
            asked = msgspec.json.decode(text)
            if asked["type"] != "read":
                return
            if (at := self._asked.get(str(asked["id"]))) is not None:
                self._there.append(perf_counter() - at)
            socket.transport.write(
                message(id=asked["id"], type="response", from_=asked["to"], to=asked["from"],
                        body={"code": 200})
            )  # fmt: skip

        socket.on_text = answer

    def _answered(self, text: bytes) -> None:
        answer = msgspec.json.decode(text)
        at = self._asked.pop(str(answer["id"]), None)
        if at is None or answer["type"] != "response":
            return
        if answer["body"].get("code") == 200:
            self._took.append(perf_counter() - at)
        else:
            self._asked[str(answer["id"])] = at  # an answer of the node: the request is lost


async def opened(port: int, domain: str, name: str, node: str, address: str = "") -> LoadSocket:
    """A runtime of a domain that listens to an address, `hyperty://<domain>/<name>` by default."""
    url = f"runtime://{domain}/{name}"
    socket = await LoadSocket.connect(port)
    await socket.ask(id=1, type="open", from_=url, to="mn:/session", body={})
    wanted = {"resources": [address or f"hyperty://{domain}/{name}"]}
    manager = f"domain://msg-node.{node}/sm"
    await socket.ask(id=2, type="subscribe", from_=f"{url}/sm", to=manager, body=wanted)
    return socket
