"""Runtimes in pairs that ask and answer under way, and know of each request what became of it."""

from __future__ import annotations

import asyncio
import itertools
import json
from array import array
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.client import Client, Frame, runtime
from tests.node import eventually

RATE = 20  # requests a second of each pair
ANSWERS = 40  # that are given again on the next socket
QUIET = 20.0  # seconds in which what is under way has to come to an end
UNREAD = 5.0  # seconds for which a runtime may have had a request and not read it
PROMISED = 60.0  # seconds in which a runtime is back, and whoever lost something is told so


class Door(Protocol):
    """Where runtimes connect: a worker, or a balancer before several."""

    def ws(self) -> Client: ...


class Runtime:
    """Asks its partner, answers what it is asked, and comes back when it is sent away.

    Every request ends in a way that somebody knows of: `answered` by the partner, `refused` by the
    node, `unsure` because the asker's own socket ended within PROMISED. What is none of these is
    `open`; it is accounted for only if the asker or its partner was told of a gap within PROMISED.
    A request that came already came `twice`; an answer may, because it is given again.
    """

    def __init__(self, workers: Sequence[Door]) -> None:
        self.workers = workers
        self.url = runtime()
        self.partner: Runtime
        self.token = ""
        self.answered: set[int] = set()
        self.refused: dict[int, Frame] = {}
        self.unsure: set[int] = set()
        self.open: dict[int, float] = {}
        self.round_trips = array("d")  # seconds, of those whose socket was not lost meanwhile
        self.gaps: list[float] = []
        self._cuts: list[float] = []
        self.twice: list[int] = []
        self._old: dict[int, float] = {}  # open for longer than PROMISED when the socket ended
        self._asked: set[int] = set()  # by the partner
        self._answers: deque[Frame] = deque(maxlen=ANSWERS)  # that a lost socket may not have sent
        self.closes: list[int] = []
        self.lost_sessions = 0
        self.refusals: Counter[str] = Counter()  # why it was not let in
        self._ids = itertools.count(1)
        self._client: Client | None = None

    async def live(self, number: int) -> None:
        """Connect, and again whenever the socket ends, to whichever worker takes it."""
        choice = itertools.cycle(range(len(self.workers)))
        for _ in range(number):
            next(choice)
        while True:
            try:
                client = await self._arrive(self.workers[next(choice)])
            except (OSError, InvalidHandshake, ConnectionClosed, TimeoutError, AssertionError):
                await asyncio.sleep(0.05)
                continue
            self._client = client
            with suppress(ConnectionClosed, TimeoutError):
                while True:
                    await self._take(json.loads(await client.socket.recv()), client)
            self._client = None
            self.closes.append(client.socket.close_code or 0)
            latest = asyncio.get_running_loop().time() - PROMISED
            for number, sent in self.open.items():
                if sent > latest:
                    self.unsure.add(number)  # the asker knows that it does not know
                else:
                    self._old[number] = sent
            self.open.clear()

    async def _arrive(self, worker: Door) -> Client:
        client = await worker.ws().connect()
        try:
            if not self.token:
                await client.open(self.url)
                self.token = client.token
                return client
            answer = await client.reopen(self.url, self.token)
            assert answer["body"]["code"] == 200, answer
        except BaseException as error:  # a socket left open counts among those of its address
            self.refusals[str(error)[:200]] += 1
            client.cut()
            raise
        if "runtimeToken" in answer["body"]:
            self.lost_sessions += 1
            self.token = answer["body"]["runtimeToken"]
        for frame in self._answers:
            await self._answer(frame, client)
        for frame in client.inbox:
            await self._take(frame, client)
        return client

    async def _take(self, frame: Frame, client: Client) -> None:
        body = frame.get("body") or {}
        if frame["type"] == "response":
            sent = self.open.pop(frame["id"], None)
            if sent is not None:
                self.round_trips.append(asyncio.get_running_loop().time() - sent)
            self._old.pop(frame["id"], None)
            self.unsure.discard(frame["id"])
            if body.get("code") == 200:
                self.answered.add(frame["id"])
            else:
                self.refused[frame["id"]] = body
        elif frame["type"] == "execute":
            if frame["id"] in self._asked:
                self.twice.append(frame["id"])
            self._asked.add(frame["id"])
            self._answers.append(frame)
            await self._answer(frame, client)
        elif body.get("value") == "gap":
            self.gaps.append(asyncio.get_running_loop().time())

    async def _answer(self, frame: Frame, client: Client) -> None:
        body = {"code": 200}
        await client.send("response", frame["from"], body, id=frame["id"], sender=self.url)

    def cut(self) -> None:
        """Lose the socket, and what has come over it and was not read."""
        if self._client is not None:
            self._cuts.append(asyncio.get_running_loop().time())
            self._client.cut()

    async def ask(self) -> None:
        """One request to the partner, if there is a socket just now."""
        client = self._client
        if client is None:
            return
        number = next(self._ids)
        self.open[number] = asyncio.get_running_loop().time()
        with suppress(ConnectionClosed):
            await client.send(
                "execute", self.partner.url, {"value": number}, id=number, sender=self.url
            )

    @property
    def is_back(self) -> bool:
        return self._client is not None

    def silently_lost(self) -> list[int]:
        """Requests of which nobody knows that they are lost."""
        gaps = [*self.gaps, *self.partner.gaps]
        return [
            number
            for number, sent in {**self._old, **self.open}.items()
            if not any(sent <= gap <= sent + PROMISED for gap in gaps)
            and not any(sent <= cut <= sent + UNREAD for cut in self.partner._cuts)
        ]


async def traffic(askers: list[Runtime]) -> None:
    """RATE requests a second of each, as the clock says, however long a turn takes."""
    loop = asyncio.get_running_loop()
    began, asked = loop.time(), 0
    while True:
        due = int((loop.time() - began) * RATE)
        while asked < due:
            asked += 1
            for asker in askers:
                await asker.ask()
        await asyncio.sleep(0.5 / RATE)


async def until_back(runtimes: list[Runtime]) -> None:
    try:
        async with asyncio.timeout(PROMISED):
            while not all(each.is_back for each in runtimes):
                await eventually()
    except TimeoutError:
        away = {each.url: dict(each.refusals) for each in runtimes if not each.is_back}
        raise TimeoutError(f"These are not back: {away}") from None


async def until_quiet(askers: Sequence[Runtime]) -> None:
    """Until every request has ended, at most so long."""
    limit = asyncio.get_running_loop().time() + QUIET
    while any(each.open for each in askers) and asyncio.get_running_loop().time() < limit:
        await eventually()


def pairs(number: int, doors: Sequence[Door]) -> list[Runtime]:
    """So many pairs of runtimes, those that ask first."""
    runtimes = [Runtime(doors) for _ in range(2 * number)]
    for one, other in zip(runtimes[:number], runtimes[number:], strict=True):
        one.partner, other.partner = other, one
    return runtimes
