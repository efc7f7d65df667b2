"""Case 53, step by step: the Python stub against a node that answers as each case says.

protostub-cases.jsonl has the cases of both languages; protostub.test.mjs plays them, too.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from socket import create_server
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from msgnode.runtime.python import protostub
from msgnode.runtime.python.minibus import MiniBus
from msgnode.runtime.python.protostub import Settings, activate, back_off, spread

STUB = "runtime://d/protostub/1"
ME = "runtime://d/me"
SM = "domain://msg-node.d/sm"
SESSION = "mn:/session"
SECONDS = 10.0

Message = dict[str, Any]


def cases(kind: str) -> list[Any]:
    """The shared cases of a kind, once for each of the values that stand for "$"."""
    found = []
    text = (Path(__file__).parent / "protostub-cases.jsonl").read_text(encoding="utf-8")
    for line in text.splitlines():
        for value in json.loads(line).get("each", [None]):
            case = json.loads(line.replace('"$"', json.dumps(value)))
            if case["of"] == kind:
                found.append(pytest.param(case, id=f"{case['name']} {value or ''}"))
    return found


def in_python(config: Message) -> Message:
    """Settings in Python's names, and in seconds instead of milliseconds."""
    found = {}
    for name, value in config.items():
        snake = re.sub("([A-Z])", r"_\1", name).lower()
        found[snake] = value if snake in ("url", "max_queue", "max_frame") else value / 1000
    return found


@dataclass
class Connection:
    """What came over a connection of the stub, and how much of it steps have looked at."""

    socket: ServerConnection
    of_session: list[Message] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    asked: int = 0
    got: int = 0


class Play:
    """A stub with its bus, and the steps of a case, which play the node."""

    def __init__(self, url: str) -> None:
        self.settings = {"url": url, "runtimeURL": ME, "min_delay": 0.01}
        self.heard: list[Message] = []  # what has reached the bus
        self.send: Callable[[Message], None]
        self._connections: list[Connection] = []
        self._opened = 0
        self._grown = asyncio.Event()
        self._promise: asyncio.Task[Any]

    # --- the bus ----------------------------------------------------------------------------------

    def add_listener(self, address: str, listener: Callable[[Message], None]) -> None:
        assert address == "*"
        self.send = listener

    def post_message(self, message: Message) -> None:
        self.heard.append(message)
        self._grown.set()

    @property
    def statuses(self) -> list[str]:
        return [each["body"]["value"] for each in self.heard if each["to"] == f"{STUB}/status"]

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while not is_so():
                self._grown.clear()
                await self._grown.wait()

    # --- the node ---------------------------------------------------------------------------------

    async def handle(self, socket: ServerConnection) -> None:
        it = Connection(socket)
        self._connections.append(it)
        self._grown.set()
        async for text in socket:
            message = json.loads(text)
            (it.of_session if message["to"] == SESSION else it.messages).append(message)
            self._grown.set()

    @property
    def node(self) -> Connection:
        return self._connections[self._opened - 1]

    # --- steps ------------------------------------------------------------------------------------

    async def steps(self, steps: list[list[Any]], **config: Any) -> None:
        self.stub = activate(STUB, self, self.settings | config)["instance"]
        for act, *words in steps:
            await getattr(self, f"do_{act}")(*words)

    async def do_send(self, id_: int, body: Message | None = None) -> None:
        """A text may be a pair: how often the first is repeated."""
        body = dict(body or {})
        if isinstance(body.get("text"), list):
            body["text"] = body["text"][0] * body["text"][1]
        self.send(request(id_, **body))

    async def do_send_body(self, id_: int, body: Any) -> None:
        self.send({**request(id_), "body": body})

    async def do_change(self, size: int) -> None:
        self.send(change("y" * size))

    async def do_subscribe(self, id_: int, first: int, end: int, type_: str = "subscribe") -> None:
        body = {"resources": addresses(first, end), "source": ME}
        self.send({"id": id_, "type": type_, "from": f"{ME}/sm", "to": SM, "body": body})

    async def do_unsubscribe(self, id_: int, first: int, end: int) -> None:
        await self.do_subscribe(id_, first, end, "unsubscribe")

    async def do_connect(self, identity: Any = None) -> None:
        self._promise = asyncio.create_task(self.stub.connect(identity))

    async def do_disconnect(self) -> None:
        self._promise = asyncio.create_task(self.stub.disconnect())

    async def do_is(self, state: str | None) -> None:
        assert await self._promise == state

    async def do_opens(self) -> None:
        self._opened += 1
        await self.until(lambda: len(self._connections) >= self._opened)

    async def do_asked(self, expected: Message) -> None:
        node = self.node
        await self.until(lambda: len(node.of_session) > node.asked)
        frame = node.of_session[node.asked]
        node.asked += 1
        assert frame == {"id": frame["id"], **expected, "to": SESSION}

    async def do_answers(self, body: Message | None) -> None:
        node = self.node
        if node.asked == 0:
            await self.until(lambda: bool(node.of_session))
        node.asked = len(node.of_session)
        asked = node.of_session[-1]
        head = {"id": asked["id"], "type": "response", "from": SESSION, "to": asked["from"]}
        await node.socket.send(json.dumps({**head, "body": body}))

    async def do_live(self, token: str | None = None) -> None:
        times = self.statuses.count("live")
        await self.do_opens()
        await self.do_answers({"code": 200, "runtimeToken": token})
        await self.until(lambda: self.statuses.count("live") > times)

    async def do_gets(self, *ids: int) -> None:
        node = self.node
        await self.until(lambda: len(node.messages) >= node.got + len(ids))
        assert [each["id"] for each in node.messages[node.got :]] == [*ids]
        node.got += len(ids)

    async def do_grants(self, code: int, first: int, end: int) -> None:
        node = self.node
        await self.until(lambda: len(node.messages) > node.got)
        asked = node.messages[node.got]
        node.got += 1
        assert (asked["from"], asked["to"], asked["body"]["source"]) == (f"{ME}/sm", SM, ME)
        assert asked["body"]["resources"] == addresses(first, end)
        head = {"id": asked["id"], "type": "response", "from": SM, "to": asked["from"]}
        await self.do_says({**head, "body": {"code": code}})

    async def do_says(self, message: Message | str) -> None:
        text = message if isinstance(message, str) else json.dumps(message)
        await self.node.socket.send(text)

    async def do_echoes(self) -> None:
        await self.do_says(self.node.messages[self.node.got - 1])

    async def do_breaks(self) -> None:
        self.node.socket.transport.abort()

    async def do_closes(self, code: int, reason: str = "") -> None:
        await self.node.socket.close(code, reason)

    async def do_statuses(self, expected: list[str]) -> None:
        await self.until(lambda: len(self.statuses) >= len(expected))
        assert self.statuses == expected

    async def do_heard(self, *expected: Message) -> None:
        def last() -> list[Message]:
            flat = [{**each["body"], **each} for each in self.heard[-len(expected) :]]
            pairs = zip(flat, expected, strict=False)
            return [{key: each.get(key) for key in like} for each, like in pairs]

        await self.until(lambda: last() == [*expected])

    async def do_state(self, state: str) -> None:
        assert self.stub.state == state

    async def do_rests(self) -> None:
        """It does nothing more by itself."""
        assert self.stub._task is None
        assert len(self._connections) == self._opened

    async def end(self) -> None:
        """Break every connection: the stub need not wait for an answer to its good-bye."""
        for each in self._connections:
            each.socket.transport.abort()
        await self.stub.disconnect()


@pytest.fixture
async def play() -> AsyncIterator[Play]:
    made = Play("")
    async with serve(made.handle, "127.0.0.1", 0) as server:
        made.settings["url"] = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"
        yield made
        await made.end()


def request(id_: Any, **body: Any) -> Message:
    return {"id": id_, "type": "read", "from": f"{ME}/x", "to": "comm://d/o", "body": body}


def change(text: str) -> Message:
    head = {"id": 1, "type": "update", "from": "comm://d/o", "to": "comm://d/o/changes"}
    return {**head, "body": {"value": text}}


def addresses(first: int, end: int) -> list[str]:
    return [f"comm://d/{number}/changes" for number in range(first, end)]


# --- the cases of both languages ------------------------------------------------------------------


@pytest.mark.parametrize("case", cases("stub"))
async def test_case_53(play: Play, case: Message) -> None:
    await play.steps(case["steps"], **in_python(case.get("config", {})))


@pytest.mark.parametrize("case", cases("defaults"))
def test_what_is_not_set(case: Message) -> None:
    assert in_python(case["is"]).items() <= asdict(Settings("", "")).items()


@pytest.mark.parametrize("case", cases("backOff"))
def test_case_53_delays(case: Message) -> None:
    for attempt, jitter, delay in case["rows"]:
        assert back_off(attempt, Settings("", ""), jitter) == delay / 1000
    assert len({back_off(3, Settings("", "")) for _ in range(20)}) > 10


@pytest.mark.parametrize("case", cases("spread"))
def test_a_restart_spreads_returns_over_the_time_that_the_node_names(case: Message) -> None:
    for reason, within in case["rows"]:
        assert spread(reason, Settings("", "")) == within / 1000, reason


# --- what is Python's alone -----------------------------------------------------------------------

LIVE: list[list[Any]] = [["send", 1], ["live", "t1"]]


async def test_a_node_that_is_away_is_a_disconnection(play: Play) -> None:
    await play.steps([["send", 1]], url="ws://127.0.0.1:1/ws")
    await play.do_statuses(["created", "in-progress", "disconnected"])


async def test_a_node_that_takes_connections_and_is_silent_is_left_in_peace(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    def noted(attempt: int, settings: Settings) -> float:
        tries.append(attempt)
        return back_off(attempt, settings)

    monkeypatch.setattr(protostub, "back_off", noted)
    with create_server(("127.0.0.1", 0)) as silent:
        url = f"ws://127.0.0.1:{silent.getsockname()[1]}/ws"
        await play.steps([["send", 1]], url=url, connect_timeout=0.05, stable_after=0.01)
        async with asyncio.timeout(SECONDS):
            while len(tries) < 3:  # noqa: ASYNC110 (its tries are no events)
                await asyncio.sleep(0.01)
    assert tries[:3] == [0, 1, 2]


async def test_a_connection_that_breaks_while_messages_are_on_their_way_out_is_a_gap(
    play: Play,
) -> None:
    await play.steps(LIVE, max_queue=2**27)
    play.node.socket.transport.pause_reading()
    for _ in range(400):  # more than the buffers of the kernel hold, however it is compressed
        play.send(change(secrets.token_urlsafe(75_000)))
        await asyncio.sleep(0)
    assert "gap" not in play.statuses
    await play.do_breaks()
    await play.do_heard({"value": "gap"}, {"value": "disconnected"})


async def test_a_listener_that_fails_is_reported_and_does_not_stop_the_stub(play: Play) -> None:
    await play.steps(LIVE)
    reported: list[Message] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    keep = play.post_message

    def fail_on_changes(message: Message) -> None:
        if message["to"].endswith("/changes"):
            raise ValueError("a listener's fault")
        keep(message)

    play.post_message = fail_on_changes  # type: ignore[method-assign]
    await play.do_says(change("first"))
    await play.do_says(request(5))
    await play.do_heard({"id": 5})
    assert str(reported[0]["exception"]) == "a listener's fault"


async def test_a_fault_of_the_stub_itself_is_a_failure_that_is_seen(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protostub, "_decoded", lambda frame: frame / 0)
    await play.steps([["send", 1], ["opens"], ["answers", {"code": 200}]])
    await play.do_heard({"value": "failed"}, {"id": 1, "code": 500})
    assert "broke" in play.heard[-2]["body"]["desc"]


# --- the bus --------------------------------------------------------------------------------------


async def test_the_minibus_gives_answers_to_who_asked() -> None:
    bus = MiniBus()

    def answer(message: Message) -> None:
        for code in (100, 200):
            reply = {"id": message["id"], "from": message["to"], "to": message["from"]}
            bus.post_message({**reply, "type": "response", "body": {"code": code}})

    bus.add_listener("*", answer)
    asked = {"type": "read", "from": f"{ME}/x", "to": "comm://d/o"}
    assert (await bus.request(asked))["body"]["code"] == 200


async def test_the_minibus_never_sends_out_what_came_in() -> None:
    bus = MiniBus()
    out: list[Message] = []
    local: list[Message] = []
    bus.add_listener("*", out.append)
    listening = bus.add_listener("comm://d/o", local.append)
    bus.post_message({**request(1, via=STUB), "type": "update"})
    await asyncio.sleep(0)
    listening.remove()
    bus.post_message({**request(2, via=STUB), "type": "response"})
    await asyncio.sleep(0)
    assert [each["id"] for each in local] == [1]
    assert out == []


async def test_a_request_that_nobody_answers_times_out() -> None:
    bus = MiniBus()
    bus.add_listener("*", lambda _: None)
    with pytest.raises(TimeoutError):
        await bus.request(request(1), seconds=0.01)
