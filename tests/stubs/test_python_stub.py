"""Case 53, step by step: the Python stub against a node that answers as each test says."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable
from socket import create_server
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from msgnode.runtime.python import protostub
from msgnode.runtime.python.minibus import MiniBus
from msgnode.runtime.python.protostub import Protostub, Settings, activate, back_off

STUB = "runtime://d/protostub/1"
ME = "runtime://d/me"
SM = "domain://msg-node.d/sm"
SECONDS = 10.0

Message = dict[str, Any]


class ScriptedNode:
    """Every connection of the stub, for the test to speak on."""

    def __init__(self) -> None:
        self.url = ""
        self._sockets: list[ServerConnection] = []
        self._arrived: asyncio.Queue[ServerConnection] = asyncio.Queue()

    async def handle(self, socket: ServerConnection) -> None:
        self._sockets.append(socket)
        self._arrived.put_nowait(socket)
        await socket.wait_closed()

    async def next(self) -> ServerConnection:
        async with asyncio.timeout(SECONDS):
            return await self._arrived.get()

    def vanish(self) -> None:
        """Break every connection; a stub need not wait for an answer to its good-bye."""
        for socket in self._sockets:
            socket.transport.abort()

    def tries(self) -> int:
        return self._arrived.qsize()

    async def asked(self, socket: ServerConnection) -> Message:
        async with asyncio.timeout(SECONDS):
            message: Message = json.loads(await socket.recv())
            return message

    async def answer(self, socket: ServerConnection, **body: Any) -> Message:
        """Answer the next session frame; returns that frame."""
        asked = await self.asked(socket)
        assert asked["to"] == "mn:/session"
        reply = {"id": asked["id"], "type": "response", "from": "mn:/session", "to": asked["from"]}
        await socket.send(json.dumps({**reply, "body": body}))
        return asked


class Bus:
    """Keeps what reaches it; `wait_for` waits for more."""

    def __init__(self) -> None:
        self.got: list[Message] = []
        self.outgoing: list[Callable[[Message], None]] = []
        self._grown = asyncio.Event()

    def add_listener(self, address: str, listener: Callable[[Message], None]) -> None:
        assert address == "*"
        self.outgoing.append(listener)

    def post_message(self, message: Message) -> None:
        self.got.append(message)
        self._grown.set()

    def send(self, message: Message) -> None:
        for listener in self.outgoing:
            listener(message)

    @property
    def statuses(self) -> list[str]:
        return [each["body"]["value"] for each in self.got if each["to"] == f"{STUB}/status"]

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while not is_so():
                self._grown.clear()
                await self._grown.wait()

    async def status(self, value: str, times: int = 1) -> None:
        await self.until(lambda: self.statuses.count(value) >= times)


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedNode]:
    node = ScriptedNode()
    async with serve(node.handle, "127.0.0.1", 0) as server:
        node.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"
        yield node


@pytest.fixture
async def load(scripted: ScriptedNode) -> AsyncIterator[Callable[..., tuple[Protostub, Bus]]]:
    stubs: list[Protostub] = []

    def make(**config: Any) -> tuple[Protostub, Bus]:
        bus = Bus()
        settings = {"url": scripted.url, "runtimeURL": ME, "min_delay": 0.01, **config}
        stubs.append(activate(STUB, bus, settings)["instance"])
        return stubs[-1], bus

    yield make
    scripted.vanish()
    for stub in stubs:
        await stub.disconnect()


Load = Callable[..., tuple[Protostub, Bus]]


async def live(scripted: ScriptedNode, bus: Bus, token: str = "t1") -> ServerConnection:
    """Bring the stub's next connection to life."""
    socket = await scripted.next()
    times = bus.statuses.count("live") + 1
    await scripted.answer(socket, code=200, runtimeToken=token)
    await bus.status("live", times)
    return socket


def request(id_: Any, **body: Any) -> Message:
    return {"id": id_, "type": "read", "from": f"{ME}/x", "to": "comm://d/o", "body": body}


def change(text: str) -> Message:
    head = {"id": 1, "type": "update", "from": "comm://d/o", "to": "comm://d/o/changes"}
    return {**head, "body": {"value": text}}


# --- the session ----------------------------------------------------------------------------------


async def test_case_53_the_first_message_connects_and_leaves_when_the_session_is_open(
    scripted: ScriptedNode, load: Load
) -> None:
    _, bus = load()
    bus.send(request(1))
    socket = await scripted.next()
    asked = await scripted.answer(socket, code=200, runtimeToken="t1")
    assert asked == {"id": 1, "type": "open", "from": ME, "to": "mn:/session"}
    assert (await scripted.asked(socket))["id"] == 1
    assert bus.statuses == ["created", "in-progress", "live"]


async def test_case_53_a_lost_session_is_opened_again_with_its_token(
    scripted: ScriptedNode, load: Load
) -> None:
    _, bus = load()
    bus.send(request(1))
    socket = await live(scripted, bus, "t1")
    socket.transport.abort()
    socket = await scripted.next()
    asked = await scripted.answer(socket, code=200)
    assert (asked["type"], asked["from"]) == ("re-open", f"{ME}/t1")
    await bus.status("live", 2)
    assert bus.statuses == ["created", "in-progress", "live", "disconnected", "live"]


async def test_case_53_a_token_in_the_answer_to_re_open_is_taken_over_and_is_a_gap(
    scripted: ScriptedNode, load: Load
) -> None:
    stub, bus = load()
    bus.send(request(1))
    for token, before in [("t1", ME), ("t2", f"{ME}/t1"), ("t3", f"{ME}/t2")]:
        socket = await scripted.next()
        asked = await scripted.answer(socket, code=200, runtimeToken=token)
        assert asked["from"] == before
        await bus.until(lambda: stub.state == "live")
        socket.transport.abort()
    assert bus.statuses.count("gap") == 2


def subscribe(id_: int, resources: list[str], type_: str = "subscribe") -> Message:
    body = {"resources": resources, "source": ME}
    return {"id": id_, "type": type_, "from": f"{ME}/sm", "to": SM, "body": body}


async def test_r51_a_new_session_gets_what_the_node_had_granted_before_what_waits(
    scripted: ScriptedNode, load: Load
) -> None:
    stub, bus = load()
    many = [f"comm://d/{number}/changes" for number in range(150)]

    async def grant(socket: ServerConnection, code: int = 200) -> Message:
        asked = await scripted.asked(socket)
        head = {"id": asked["id"], "type": "response", "from": SM, "to": asked["from"]}
        await socket.send(json.dumps({**head, "body": {"code": code}}))
        return asked

    bus.send(subscribe(1, many))
    bus.send(subscribe(2, ["comm://d/refused"]))
    bus.send(subscribe(3, ["comm://d/0/changes"], "unsubscribe"))
    first = await scripted.next()
    await scripted.answer(first, code=200, runtimeToken="t1")
    for code in (200, 403, 200):
        await grant(first, code)
    await bus.until(lambda: sum(each["type"] == "response" for each in bus.got) == 3)
    first.transport.abort()
    second = await scripted.next()
    assert (await scripted.answer(second, code=200))["type"] == "re-open"
    await bus.status("live", 2)
    bus.send({"id": 8, "type": "read", "from": f"{ME}/x", "to": "comm://d/o"})
    assert (await scripted.asked(second))["id"] == 8  # the same session: nothing is announced
    second.transport.abort()
    await bus.status("disconnected", 2)
    bus.send({"id": 9, "type": "read", "from": f"{ME}/x", "to": "comm://d/o"})
    third = await scripted.next()
    await scripted.answer(third, code=200, runtimeToken="t2")
    told = [await grant(third), await grant(third, 403)]
    assert [(each["type"], each["to"], each["body"]["source"]) for each in told] == [
        ("subscribe", SM, ME)
    ] * 2
    assert [len(each["body"]["resources"]) for each in told] == [100, 49]
    assert [x for each in told for x in each["body"]["resources"]] == many[1:]
    assert (await scripted.asked(third))["id"] == 9
    await bus.status("gap", 2)
    assert sum(each["type"] == "response" for each in bus.got) == 3
    assert "403 to 49 addresses" in bus.got[-1]["body"]["desc"]


async def test_a_node_that_answers_re_open_with_500_is_asked_for_a_new_session(
    scripted: ScriptedNode, load: Load
) -> None:
    _, bus = load()
    bus.send(request(1))
    (await live(scripted, bus)).transport.abort()
    socket = await scripted.next()
    await scripted.answer(socket, code=500, desc="Reconnection fail. Incorrect runtime token!")
    asked = await scripted.answer(socket, code=200, runtimeToken="t2")
    assert (asked["type"], asked["from"]) == ("open", ME)
    await bus.status("gap")


async def test_no_answer_in_time_is_a_disconnection_and_another_try(
    scripted: ScriptedNode, load: Load
) -> None:
    assert Settings("", "").reply_timeout == 3.0
    _, bus = load(reply_timeout=0.05)
    bus.send(request(1))
    await scripted.next()
    await bus.status("disconnected")
    assert bus.got[-1]["body"]["desc"] == "Timeout from mn:/session"
    await scripted.next()


async def test_a_refused_session_fails_with_the_nodes_words(
    scripted: ScriptedNode, load: Load
) -> None:
    stub, bus = load()
    bus.send(request(7))
    await scripted.answer(await scripted.next(), code=403, desc="in use")
    await bus.status("failed")
    assert stub.state == "failed"
    status, answer = bus.got[-2:]
    assert status["body"]["desc"] == "in use"
    assert (answer["id"], answer["to"], answer["body"]["code"]) == (7, f"{ME}/x", 403)


@pytest.mark.parametrize("newer", [{"assertion": "newer"}, None])
async def test_a_session_whose_identity_has_ended_waits_for_a_newer_one_and_goes_on(
    scripted: ScriptedNode, load: Load, newer: Message | None
) -> None:
    stub, bus = load(identity_timeout=20.0 if newer else 0.05)
    first = asyncio.create_task(stub.connect({"assertion": "older"}))
    socket = await live(scripted, bus, "t1")
    assert await first == "live"
    socket.transport.abort()
    await bus.status("disconnected")
    bus.send(request(1))
    await scripted.answer(await scripted.next(), code=401, desc="It has ended.")
    await bus.status("in-progress", 2)
    if newer is None:
        await bus.until(lambda: bus.got[-1]["type"] == "response")
        assert (bus.statuses[-1], bus.got[-1]["body"]["code"]) == ("failed", 401)
        return
    second = asyncio.create_task(stub.connect(newer))
    socket = await scripted.next()
    asked = await scripted.answer(socket, code=200)
    assert (asked["type"], asked["from"]) == ("re-open", f"{ME}/t1")
    assert asked["body"]["identity"] == newer
    assert (await scripted.asked(socket))["id"] == 1
    assert await second == "live"


async def test_disconnect_says_good_bye_with_the_session_url(
    scripted: ScriptedNode, load: Load
) -> None:
    stub, bus = load()
    bus.send(request(1))
    socket = await live(scripted, bus, "t1")
    await scripted.asked(socket)  # the message
    gone = asyncio.create_task(stub.disconnect())
    asked = await scripted.answer(socket, code=200)
    assert asked == {"id": 2, "type": "close", "from": f"{ME}/t1", "to": "mn:/session"}
    await socket.close(1000)
    await gone
    assert stub.state == "disconnected"
    assert scripted.tries() == 0


async def test_connect_returns_the_state_that_follows(scripted: ScriptedNode, load: Load) -> None:
    stub, bus = load()
    connecting = asyncio.create_task(stub.connect({"token": "x"}))
    asked = await scripted.answer(await scripted.next(), code=200, runtimeToken="t1")
    assert asked["body"] == {"identity": {"token": "x"}}
    assert await connecting == "live"
    assert await stub.connect() == "live"


# --- close codes and delays -----------------------------------------------------------------------


@pytest.mark.parametrize("code", [4403, 4409])
async def test_after_this_close_code_it_does_not_return(
    scripted: ScriptedNode, load: Load, code: int
) -> None:
    stub, bus = load()
    bus.send(request(1))
    await (await live(scripted, bus)).close(code, "because")
    await bus.status("failed")
    assert bus.got[-1]["body"]["desc"] == "because"
    bus.send(request(2))
    assert (bus.got[-1]["id"], bus.got[-1]["body"]["code"]) == (2, 503)
    assert stub.state == "failed"


@pytest.mark.parametrize("code", [1000, 1001, 3001, 3008, 4400, 4401, 4413, 4429])
async def test_after_this_close_code_it_returns(
    scripted: ScriptedNode, load: Load, code: int
) -> None:
    _, bus = load(stagger=0.01)
    bus.send(request(1))
    await (await live(scripted, bus)).close(code)
    asked = await scripted.answer(await scripted.next(), code=200)
    assert asked["type"] == "re-open"


def test_case_53_delays_double_up_to_a_limit_with_jitter() -> None:
    settings = Settings("", "")
    whole = [back_off(attempt, settings, jitter=1.0) for attempt in (0, 1, 2, 3, 20, 10_000)]
    assert whole == [0.25, 0.5, 1.0, 2.0, 30.0, 30.0]
    assert back_off(1, settings, jitter=0.0) == 0.25
    assert len({back_off(3, settings) for _ in range(20)}) > 10


async def test_connect_while_it_waits_tries_at_once(scripted: ScriptedNode, load: Load) -> None:
    stub, bus = load(min_delay=3600.0, max_delay=3600.0)
    bus.send(request(1))
    (await live(scripted, bus)).transport.abort()
    await bus.status("disconnected")
    connecting = asyncio.create_task(stub.connect())
    await scripted.answer(await scripted.next(), code=200)
    assert await connecting == "live"


async def test_a_url_that_is_none_is_a_failure(load: Load) -> None:
    stub, _ = load(url="no url")
    assert await stub.connect() == "failed"


async def test_a_node_that_is_away_is_a_disconnection(load: Load) -> None:
    _, bus = load(url="ws://127.0.0.1:1/ws")
    bus.send(request(1))
    await bus.status("disconnected")
    assert bus.statuses == ["created", "in-progress", "disconnected"]


async def test_a_node_that_takes_connections_and_is_silent_is_left_in_peace(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    def noted(attempt: int, settings: Settings) -> float:
        tries.append(attempt)
        return back_off(attempt, settings)

    monkeypatch.setattr(protostub, "back_off", noted)
    with create_server(("127.0.0.1", 0)) as silent:
        url = f"ws://127.0.0.1:{silent.getsockname()[1]}/ws"
        _, bus = load(url=url, connect_timeout=0.05, stable_after=0.01)
        bus.send(request(1))
        async with asyncio.timeout(SECONDS):
            while len(tries) < 3:  # noqa: ASYNC110 (its tries are no events)
                await asyncio.sleep(0.01)
    assert tries[:3] == [0, 1, 2]


# --- messages -------------------------------------------------------------------------------------


async def test_case_53_via_filter_both_ways(scripted: ScriptedNode, load: Load) -> None:
    _, bus = load()
    bus.send(request(1, via=STUB))  # came in through this stub
    bus.send(request(2, via="runtime://d/protostub/other"))
    socket = await live(scripted, bus)
    sent = await scripted.asked(socket)
    assert sent["id"] == 2
    await socket.send(json.dumps(sent))  # went out through it
    await socket.send(json.dumps(change("theirs")))
    await bus.until(lambda: bus.got[-1]["to"] == "comm://d/o/changes")
    assert bus.got[-1]["body"] == {"value": "theirs", "via": STUB}
    assert not [each for each in bus.got if each["to"] == "comm://d/o"]


async def test_messages_wait_in_order_while_the_node_is_away(
    scripted: ScriptedNode, load: Load
) -> None:
    _, bus = load()
    bus.send(request(1))
    socket = await live(scripted, bus)
    assert (await scripted.asked(socket))["id"] == 1
    socket.transport.abort()
    await bus.status("disconnected")
    for id_ in (2, 3, 4):
        bus.send(request(id_))
    socket = await live(scripted, bus)
    assert [(await scripted.asked(socket))["id"] for _ in range(3)] == [2, 3, 4]


async def test_a_full_queue_refuses_requests_and_says_that_events_are_lost(
    scripted: ScriptedNode, load: Load
) -> None:
    _, bus = load(max_queue=400)
    bus.send(request(1))
    bus.send(request(2, text="x" * 400))
    assert (bus.got[-1]["id"], bus.got[-1]["body"]["code"]) == (2, 503)
    bus.send(change("y" * 400))
    bus.send(change("y" * 400))
    assert bus.statuses.count("gap") == 1
    await live(scripted, bus)
    await bus.status("gap", 2)
    assert bus.got[-1]["body"]["desc"].startswith("2 messages")


async def test_a_connection_that_breaks_while_messages_are_on_their_way_out_is_a_gap(
    scripted: ScriptedNode, load: Load
) -> None:
    _, bus = load(max_queue=2**27)
    bus.send(request(1))
    socket = await live(scripted, bus)
    socket.transport.pause_reading()
    for _ in range(400):  # more than the buffers of the kernel hold, however it is compressed
        bus.send(change(secrets.token_urlsafe(75_000)))
        await asyncio.sleep(0)
    assert "gap" not in bus.statuses
    socket.transport.abort()
    await bus.status("disconnected")
    await bus.status("gap")


async def test_a_message_that_the_node_would_not_take_is_answered_413(load: Load) -> None:
    _, bus = load(max_frame=300)
    bus.send(request(1, text="x" * 300))
    assert bus.got[-1]["body"]["code"] == 413
    bus.send(request(2, text="語" * 100))
    assert (bus.got[-1]["id"], bus.got[-1]["body"]["code"]) == (2, 413)


async def test_a_frame_has_no_more_bytes_than_its_text_needs(
    scripted: ScriptedNode, load: Load
) -> None:
    _, bus = load(max_frame=500)
    bus.send(request(1, text="語" * 100))
    socket = await live(scripted, bus)
    assert (await scripted.asked(socket))["body"]["text"] == "語" * 100


async def test_half_of_a_surrogate_pair_is_refused_because_no_node_reads_it(
    scripted: ScriptedNode, load: Load
) -> None:
    _, bus = load()
    bus.send(request(1, text="half a pair: \ud83d"))
    assert (bus.got[-1]["id"], bus.got[-1]["body"]["code"]) == (1, 400)
    bus.send(request(2, text="a whole one: \U0001f600 and \\ud83d"))
    socket = await live(scripted, bus)
    assert (await scripted.asked(socket))["id"] == 2


async def test_the_nodes_gap_signal_reaches_the_bus_and_the_stubs_status(
    scripted: ScriptedNode, load: Load
) -> None:
    stub, bus = load()
    bus.send(request(1))
    socket = await live(scripted, bus)
    signal = {"id": 1, "type": "update", "from": "domain://msg-node.d", "to": f"{ME}/status"}
    await socket.send("nonsense")
    await socket.send(json.dumps({**signal, "body": {"value": "gap"}}))
    await bus.status("gap")
    assert [each["to"] for each in bus.got[-2:]] == [f"{ME}/status", f"{STUB}/status"]
    assert stub.state == "live"


async def test_a_listener_that_fails_is_reported_and_does_not_stop_the_stub(
    scripted: ScriptedNode, load: Load
) -> None:
    _, bus = load()
    bus.send(request(1))
    socket = await live(scripted, bus)
    reported: list[Message] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    keep = bus.post_message

    def fail_on_changes(message: Message) -> None:
        if message["to"].endswith("/changes"):
            raise ValueError("a listener's fault")
        keep(message)

    bus.post_message = fail_on_changes  # type: ignore[method-assign]
    await socket.send(json.dumps(change("first")))
    await socket.send(json.dumps(request(5)))
    await bus.until(lambda: bus.got[-1].get("id") == 5)
    assert str(reported[0]["exception"]) == "a listener's fault"


async def test_a_fault_of_the_stub_itself_is_a_failure_that_is_seen(
    scripted: ScriptedNode, load: Load
) -> None:
    _, bus = load()
    bus.send(request(1))
    await scripted.answer(await scripted.next(), code="no number")
    await bus.status("failed")
    assert "broke" in bus.got[-2]["body"]["desc"]
    assert bus.got[-1]["body"]["code"] == 500


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
