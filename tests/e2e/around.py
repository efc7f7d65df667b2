"""What is around the workers of the soak: devices, another domain, runtimes of both languages.

Each sends numbers, one after the other, and says which of them came. A number of `invitation` is an
invitation that came and was withdrawn, one of `channel` a direct connection that was set up, used
and closed; one that did not come about counts as refused, and its messages pass through the node.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from tests.client import SM, Client, address, code
from tests.devices.client import Device, api_key
from tests.devices.mqtt.broker import Mosquitto, mosquitto, thing
from tests.devices.receiver import receiver
from tests.node import Node, eventually
from tests.runtime.p2p_pages import ask, talker, ways
from tests.runtime.sharers import Sharer, sharer
from tests.runtime.test_invitations import execute, token_of
from tests.waiting import until

PERIOD = 0.25  # seconds between two numbers
SET_UP, SET_UPS_EVERY = 20.0, 3.0  # seconds for a direct connection, and between two
INVITATIONS_PER_MINUTE = 600
CHANGES = 20  # of a shared object, a second
PEER = "b.example"
BOB, IDM = "user://localhost/bob@localhost", "domain://idm.localhost"
LIMIT = 60.0


class Stream:
    """Numbers that are sent until `ending` is set, and what became of them."""

    def __init__(self, ending: asyncio.Event) -> None:
        self.sent = 0
        self.came: set[int] = set()
        self.refused: Counter[int] = Counter()
        self._ending = ending

    async def run(
        self,
        send: Callable[[int], Awaitable[Any]],
        take: Coroutine[Any, Any, None] | None = None,
        period: float = PERIOD,
    ) -> None:
        """Send numbers, while `take` goes on with what comes."""
        async with asyncio.TaskGroup() as group:
            if take is not None:
                group.create_task(take)
            while not self._ending.is_set():
                await send(self.sent)
                self.sent += 1
                await asyncio.sleep(period)

    async def send(self, talker: Client, to: str, take: Coroutine[Any, Any, None]) -> None:
        """Send them to an address that does not answer."""
        await self.run(lambda number: talker.send("create", to, {"value": number}), take)

    @property
    def missing(self) -> list[int]:
        """Those that neither came nor were refused."""
        lost = sorted(set(range(self.sent)) - self.came)
        return lost if len(lost) > self.refused.total() else []


class Around:
    """One soak's. `settings` are those of the workers; `jobs` run beside the others."""

    def __init__(self, place: Path, template: Path, broker: Mosquitto) -> None:
        self._place = place
        self._broker = broker
        self._ending = asyncio.Event()
        names = ("webhook", "lamp", "peer", "invitation", "channel")
        self.streams = {each: Stream(self._ending) for each in names}
        self.peer = Node(place / "peer", DOMAIN=PEER, ALLOWED_HOSTS="*")
        (place / "peer").mkdir(parents=True)
        (place / "peer" / "node.sqlite3").write_bytes(template.read_bytes())

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "MQTT_URL": self._broker.url, "DEVICE_HTTP": True, "DEVICE_WEBHOOKS": True,
            "WEBHOOK_NETWORKS": "127.0.0.0/8", "FEDERATION": "listed",
            "FEDERATION_NETWORKS": "127.0.0.0/8", "INVITATIONS": True,
            "INVITATIONS_PER_MINUTE": INVITATIONS_PER_MINUTE,
        }  # fmt: skip

    def introduce(self, node: Node, database: str) -> None:
        """What the operator of the workers does: add the other domain, and approve its stub."""

        def row(column: str) -> Any:
            with psycopg.connect(database) as rows:
                found = rows.execute(f"SELECT {column} FROM msgnode_peer").fetchone()  # noqa: S608
            return found[0] if found else ""

        node.manage("peers", "add", PEER, "--url", f"http://127.0.0.1:{self.peer.port}")
        until(lambda: row("found_digest"), LIMIT)
        node.manage("peers", "approve", PEER)
        until(lambda: row("state") == "live", LIMIT, node.log)

    async def webhook(self, node: Node) -> None:
        """A network server that is posted what comes for its device."""
        stream = self.streams["webhook"]
        key = await asyncio.to_thread(api_key, node, "device:connect", "device:many")
        async with Device(node, key=key) as device, receiver() as server, _talker(node) as talker:
            body = {"url": server.url}
            hooked = await device.http.put("/webhook", json=body, headers=device.headers)
            assert hooked.status_code == 200, hooked.text

            async def take() -> None:
                while True:
                    posted = await server.posted.get()
                    stream.came.update(each["body"]["value"] for each in posted["messages"])

            await stream.send(talker, device.runtime_url, take())

    async def lamp(self, node: Node) -> None:
        """A device at the broker."""
        stream = self.streams["lamp"]
        async with thing(self._broker, "lamp") as lamp, _talker(node) as talker:
            said = await lamp.ask("subscribe", SM, {"resources": [address("comm")]})
            assert code(said) == 200, said

            async def take() -> None:
                while True:
                    frame = await lamp.receive()
                    if frame["type"] == "create":
                        stream.came.add(frame["body"]["value"])

            await stream.send(talker, lamp.runtime_url, take())

    async def abroad(self, node: Node) -> None:
        """Somebody of the other domain who is asked, and answers."""
        stream = self.streams["peer"]
        async with _talker(node) as asks, self.peer.ws() as answers:
            await answers.open(f"runtime://{PEER}/answers")

            async def ask(number: int) -> None:
                said = await asks.ask("execute", answers.runtime_url, {"value": number})
                if code(said) == 200:
                    stream.came.add(said["body"]["value"])
                else:
                    stream.refused[code(said)] += 1

            await stream.run(ask, _answer(answers))

    async def invited(self, one: Node, other: Node) -> None:
        """Bob at one worker, whom Alice at the other invites and tells that it is over."""
        stream = self.streams["invitation"]
        async with _logged_in(one, "bob") as bob, _logged_in(other, "alice") as alice:
            endpoint = (await execute(bob, "subscribePush"))["value"]["endpoint"]
            (hyperty,) = await alice.allocate()
            words = {"endpoint": endpoint, "user": BOB}

            async def invite(number: int) -> None:
                said = await execute(alice, "sendInvitation", hyperty=hyperty, **words)
                if said["code"] != 200:
                    stream.refused[said["code"]] += 1
                    return
                sent = said["value"]
                sent.pop("expires")
                await _told(bob, "update", sent["invitation"])
                over = await execute(alice, "withdrawInvitation", **sent)
                if over["code"] == 200 and over["value"]["told"]:
                    await _told(bob, "delete", sent["invitation"])
                    stream.came.add(number)
                else:
                    stream.refused[over["code"]] += 1

            await stream.run(invite)

    async def channels(self, one: Node, other: Node) -> None:
        """Two runtimes that connect to each other directly, talk, and close that again."""
        stream = self.streams["channel"]
        with talker("python", None, one) as asks, talker("python", None, other) as answers:

            def connect(number: int) -> None:
                wanted = {"p2p": True, "p2pHandler": answers.named["handler"]}
                ask(asks, answers, number, **wanted, p2pRequester="x")
                with suppress(AssertionError):  # else it goes on through the node
                    until(lambda: ways(asks, answers) == ["channel", "channel"], SET_UP)
                if "/p2prequester/" in ask(asks, answers, number)["cameBy"]:
                    asks.do("bye", answers.named["runtimeURL"], "closing")
                    until(lambda: ways(asks, answers) == ["node", "node"], LIMIT)
                    stream.came.add(number)
                else:
                    stream.refused[504] += 1

            await stream.run(partial(asyncio.to_thread, connect), period=SET_UPS_EVERY)

    def end(self) -> None:
        """Send no more."""
        self._ending.set()

    async def until_quiet(self) -> None:
        """Until all that was sent has come, at most LIMIT."""
        loop = asyncio.get_running_loop()
        limit = loop.time() + LIMIT
        while loop.time() < limit and any(each.missing for each in self.streams.values()):
            await eventually()


@asynccontextmanager
async def _talker(node: Node) -> AsyncIterator[Client]:
    async with node.ws() as client:
        yield await client.open()


@asynccontextmanager
async def _logged_in(node: Node, name: str) -> AsyncIterator[Client]:
    token = await asyncio.to_thread(token_of, node, name, "localhost")
    async with _talker(node) as client:
        said = await execute(client, "login", token=token)
        assert said["code"] == 200, said
        yield client


async def _told(client: Client, type_: str, invitation: str) -> None:
    """Wait until the identity manager has told of an invitation, or of its end."""
    while True:
        frame = await client.expect(sender=IDM, type=type_)
        if frame["body"]["value"]["invitation"] == invitation:
            return


async def _answer(client: Client) -> None:
    while True:
        asked = await client.expect(type="execute")
        body = {"code": 200, "value": asked["body"]["value"]}
        await client.send("response", asked["from"], body, id=asked["id"])


class Shared:
    """A data object of a runtime in Node.js, and the copy of one in Python."""

    def __init__(self, owner: Sharer, reader: Sharer, seconds: float) -> None:
        self._owner, self._reader = owner, reader
        reader.act("subscribe", url=owner.act("create")["url"])
        for each in (owner, reader):
            each.act("run", times=int(seconds * CHANGES))

    def differences(self) -> dict[str, Any]:
        """What the copy has not noticed, and how it differs, once no further change is made."""
        for each in (self._owner, self._reader):
            each.act("stop")
            each.act("finish")
        until(lambda: self._version(self._reader) == self._version(self._owner), LIMIT)
        own, copy = self._owner.act("state"), self._reader.act("state")
        differing = {each: copy[each] for each in ("data", "children") if own[each] != copy[each]}
        missed = {each: copy[each] for each in ("unnoticed", "refused") if copy[each]}
        return {**differing, **missed}

    @staticmethod
    def _version(sharer: Sharer) -> Any:
        return sharer.act("state")["version"]


@contextmanager
def shared(nodes: list[Node], seconds: float) -> Iterator[Shared]:
    """An object that changes for so many seconds; owner and reader are at a worker each."""
    ports = [{"localhost": each.port} for each in nodes]
    with (
        sharer("nodejs", None, "localhost", ports[0]) as owner,
        sharer("python", None, "localhost", ports[1]) as reader,
    ):
        yield Shared(owner, reader, seconds)


@contextmanager
def around(place: Path, template: Path) -> Iterator[Around]:
    """A broker and a node of another domain."""
    with mosquitto(place / "broker") as broker:
        found = Around(place, template, broker)
        found.peer.start()
        try:
            yield found
        finally:
            found.peer.kill()
