"""A runtime with the P2P stubs of the field, as they are on the wire: a raw client and a channel.

What it does as the stubs on runtime core 0.17 were seen to do: it accepts every invitation at once,
announces its object before there is a description in it, sends description and candidates as
changes, takes no object whose answer lacks one of what it NEEDS, and reads frames that have a
`uuid` and a message with a `from`, raising at any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from aiortc import RTCPeerConnection, RTCSessionDescription

from tests.client import SM, Client, Frame

NEEDED = {"url", "name", "created", "reporter", "runtime", "schema"}

Written = Callable[[str, str], Iterator[tuple[str, Any]]]


def at_once(kind: str, sdp: str) -> Iterator[tuple[str, Any]]:
    """The whole description as one change."""
    yield "connectionDescription", {"type": kind, "sdp": sdp}


def split(kind: str, sdp: str) -> Iterator[tuple[str, Any]]:
    """Text and type, each as a change."""
    yield "connectionDescription.sdp", sdp
    yield "connectionDescription.type", kind


def split_type_first(kind: str, sdp: str) -> Iterator[tuple[str, Any]]:
    """Type and text, each as a change."""
    yield from reversed(list(split(kind, sdp)))


def candidates_first(kind: str, sdp: str) -> Iterator[tuple[str, Any]]:
    """Candidates before the description, twice, with some that are of no use."""
    lines = sdp.splitlines(keepends=True)
    found = [line.strip()[2:] for line in lines if line.startswith("a=candidate:")]
    head = {"type": "candidate", "sdpMid": "0", "sdpMLineIndex": 0}
    said: list[Any] = [{**head, "candidate": text} for text in found]
    junk = ["", "candidate:nonsense", "candidate:1 1 udp 1 host.invalid 9 typ host"]
    said += [{**head, "candidate": text} for text in junk]
    said += [7, None, {"candidate": 7}, {**head, "candidate": "x" * 5_000}]
    for index, each in enumerate([*said, *said]):
        yield f"iceCandidates.{index}", [each]
    rest = [line for line in lines if not line.startswith(("a=candidate:", "a=end-of-c"))]
    yield from at_once(kind, "".join(rest))


class FieldPeer:
    """One such runtime."""

    def __init__(self, client: Client, written: Written = at_once) -> None:
        self.client = client
        self.runtime_url = client.runtime_url
        self.url = f"{self.runtime_url}/app"
        self.handler = f"{self.runtime_url}/p2phandler/{uuid.uuid4()}"
        self.requester = f"runtime://localhost/p2prequester/{uuid.uuid4()}"
        self.by_channel: list[Frame] = []
        self.by_node: list[Frame] = []
        self.bytes: list[bytes] = []
        self.raised: list[str] = []
        self.acknowledged: list[int] = []
        self.channel: Any = None
        self.connections: list[RTCPeerConnection] = []
        self._written = written
        self._answers: dict[Any, asyncio.Future[Frame]] = {}
        self._observed: dict[str, Callable[[Frame], None]] = {}
        self._read: dict[str, asyncio.Event] = {}
        self._working: set[asyncio.Task[None]] = set()
        self._ids = iter(range(1_000_000, 2_000_000))

    async def __aenter__(self) -> FieldPeer:
        self._spawn(self._listen())
        for named in ({"subscribe": [self.handler]}, {"subscribe": [self.requester]}):
            assert (await self.ask("subscribe", SM, named))["body"]["code"] == 200
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self.connections:
            await each.close()
        for task in self._working:
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)

    async def ask(self, type_: str, to: str, body: Any, sender: str = "") -> Frame:
        id_ = next(self._ids)
        found = self._answers[id_] = asyncio.get_running_loop().create_future()
        await self.client.send(type_, to, body, id=id_, sender=sender or self.runtime_url)
        async with asyncio.timeout(60):
            return await found

    async def hyperty(self) -> str:
        """A registered hyperty of this runtime, as its registry makes it."""
        url = f"hyperty://localhost/{uuid.uuid4()}"
        assert (await self.ask("subscribe", SM, {"resources": [url]}))["body"]["code"] == 200
        value: Frame = {"user": "user://localhost/field", "url": url, "runtime": self.runtime_url}
        value |= {"descriptor": "hyperty-catalogue://localhost/x", "expires": 3_600}
        value |= {"p2pHandler": self.handler, "p2pRequester": "x"}
        value |= {"resources": ["chat"], "dataSchemes": ["comm"], "status": "live"}
        answer = await self.ask("create", "domain://registry.localhost", {"value": value})
        assert answer["body"]["code"] == 200, answer
        return url

    def say(self, to: str, value: Any, **more: Any) -> None:
        """An update by channel, as the field writes it."""
        message = {"id": next(self._ids), "type": "update", "from": self.url, "to": to}
        self.write({**message, "body": {"value": value}, **more})

    def write(self, message: Frame, size: int = 0, name: str = "field-uuid-1") -> None:
        """A first frame."""
        data = {"uuid": name, "sendingTime": 1, "dataSize": size, "textMessage": message}
        self.channel.send(json.dumps({"uuid": name, "data": data}))

    async def invite(self, handler: str, claimed: str = "") -> Frame:
        """Set a connection up as requester."""
        made = self._connection()
        self.channel = made.createDataChannel("P2PChannel")
        self._watch(self.channel)
        self._observed[self.requester] = lambda said: self._spawn(self._described(made, said))
        url, answer = await self._announce(self.requester, handler, claimed)
        await made.setLocalDescription(await made.createOffer())
        self._spawn(self._describe(url, made))
        return answer

    # --- what comes -------------------------------------------------------------------------------

    async def _listen(self) -> None:
        while True:
            frame = json.loads(await self.client.socket.recv())
            self._take(frame)

    def _take(self, frame: Frame) -> None:
        kind, to = frame["type"], frame["to"]
        if kind == "response":
            self.acknowledged.append(frame["body"]["code"])
            waiting = self._answers.pop(frame["id"], None)
            if waiting is not None:
                waiting.set_result(frame)
        elif kind == "create" and to in (self.handler, self.requester):
            self._answer(frame, {"code": 200})
            if to == self.handler:
                self._spawn(self._handle(frame))
            elif to in self._observed:
                self._observed[to](frame)
        elif kind == "subscribe" and to in self._read:
            data: Frame = {"name": "P2PConnection", "status": "", "runtimeURL": self.runtime_url}
            data |= {"connectionDescription": {}, "iceCandidates": []}
            url = to.removesuffix("/subscription")
            self._answer(frame, {"code": 200, "value": {"url": url, "version": 0, "data": data}})
            self._read[to].set()
        elif to.endswith("/changes") and to in self._observed:
            self._observed[to](frame)
        else:
            self.by_node.append(frame)
            if kind == "create":
                self._answer(frame, {"code": 200, "value": frame["body"].get("value")})

    async def _handle(self, invitation: Frame) -> None:
        made = self._connection()
        made.on("datachannel", self._watch)
        await self._described(made, invitation, "offer")
        url, _ = await self._announce(self.handler, invitation["body"]["source"])
        await made.setLocalDescription(await made.createAnswer())
        await self._describe(url, made)

    async def _described(self, made: Any, said: Frame, kind: str = "answer") -> None:
        """Observe the other side's object, and apply what it describes."""
        url = said["from"].removesuffix("/subscription")
        own = self.handler if kind == "offer" else self.requester
        await self.ask("subscribe", SM, {"resources": [f"{url}/changes"], "source": own})
        answer = await self.ask(
            "subscribe", f"{url}/subscription", {"subscriber": own}, f"{self.runtime_url}/sm"
        )
        value = answer["body"]["value"]
        lacking = {name for name in NEEDED if not value.get(name)}
        assert not lacking, f"{lacking} mandatory parameter is missing"
        found = value["data"]["connectionDescription"]
        assert found["type"] == kind
        await made.setRemoteDescription(RTCSessionDescription(found["sdp"], kind))

    # --- what it says -----------------------------------------------------------------------------

    async def _announce(self, own: str, to: str, claimed: str = "") -> tuple[str, Frame]:
        url = f"connection://localhost/{uuid.uuid4()}"
        named = {"resources": [url, f"{url}/subscription"], "source": own}
        assert (await self.ask("subscribe", SM, named))["body"]["code"] == 200
        self._read[f"{url}/subscription"] = asyncio.Event()
        value = {"name": "P2PConnection", "reporter": own, "resources": ["data"]}
        value |= {"runtimeURL": claimed or self.runtime_url, "status": ""}
        body = {"p2p": False, "source": own, "schema": "Connection", "value": value}
        return url, await self.ask("create", to, body, f"{url}/subscription")

    async def _describe(self, url: str, made: Any) -> None:
        await self._read[f"{url}/subscription"].wait()
        local = made.localDescription
        for version, (attribute, value) in enumerate(self._written(local.type, local.sdp), 1):
            body = {"attribute": attribute, "value": value, "version": version}
            await self.client.send("update", f"{url}/changes", body, sender=url)

    def _answer(self, frame: Frame, body: Any) -> None:
        async def answer() -> None:
            head = {"id": frame["id"], "sender": frame["to"]}
            await self.client.send("response", frame["from"], body, **head)

        self._spawn(answer())

    # --- the channel ------------------------------------------------------------------------------

    def _connection(self) -> RTCPeerConnection:
        made = RTCPeerConnection()
        self.connections.append(made)
        return made

    def _watch(self, channel: Any) -> None:
        self.channel = channel
        channel.on("message", self._framed)

    def _framed(self, data: str | bytes) -> None:
        if isinstance(data, bytes):
            self.bytes.append(data)
            return
        packet = json.loads(data)
        message = packet.get("data", {}).get("textMessage")
        if not packet.get("uuid") or not message or not message.get("from"):
            self.raised.append(data)
        else:
            self.by_channel.append(message)

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._working.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        with contextlib.suppress(asyncio.CancelledError):
            if (error := task.exception()) is not None:
                self.raised.append(repr(error))
