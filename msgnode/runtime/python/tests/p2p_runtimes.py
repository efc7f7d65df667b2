"""Runtimes with direct connections, a node between them, and a time that a test turns."""

from __future__ import annotations

import asyncio
import re
import selectors
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from msgnode.runtime.python.faults import Fault
from msgnode.runtime.python.message_bus import MessageBus
from msgnode.runtime.python.messages import Message, answer_to, copy_of
from msgnode.runtime.python.p2p import set_up
from msgnode.runtime.python.p2p.peer_to_peer import PeerToPeer
from msgnode.runtime.python.p2p.remote_runtime import RemoteRuntime
from msgnode.runtime.python.p2p.rtc import BadDescription
from msgnode.runtime.python.p2p.settings import P2PSettings, P2PTimers
from msgnode.runtime.python.p2p.states import State
from msgnode.runtime.python.settings import Settings

SM = re.compile(r"domain://msg-node\.[^/]+/sm")
NOW = 1e-6  # s, in which all happens that needs no time


class FakeLoop(asyncio.SelectorEventLoop):
    """A loop whose time passes at once when nothing else is to be done."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.now


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: FakeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing will ever happen"
        self._loop.now += max(0.0, timeout)
        return super().select(0)


def soon(call: Callable[..., object], *words: Any) -> None:
    asyncio.get_running_loop().call_soon(call, *words)


class FakeConnection:
    """An RtcConnection whose other end is in the same process."""

    def __init__(self, net: Net, *_: Any) -> None:
        self.on_open = self.on_low = self.on_close = self.on_end = lambda: None
        self.on_frame: Callable[[Any], None] = lambda frame: None
        self.other: FakeConnection | None = None
        self.is_open = self.is_closed = self.is_cut = False
        self._net = net
        net.connections.append(self)

    def _described(self) -> dict[str, str]:
        return {"sdp": str(self._net.connections.index(self)), "type": ""}

    async def offer(self) -> dict[str, str]:
        self._net.on_describing()
        return self._described()

    async def answer(self, offered: Any) -> dict[str, str]:
        if not offered:
            raise BadDescription("There is no usable offer.")
        self.other = self._net.connections[int(offered["sdp"])]
        return self._described()

    async def accept(self, answered: Any) -> None:
        self.other = self._net.connections[int(answered["sdp"])]
        if self._net.is_blocked or self.is_closed or self.other.is_closed:
            return
        self._net.on_connecting()
        for each in (self.other, self):
            each.is_open = True
            soon(lambda each: each.on_open(), each)

    def send(self, frame: Any) -> None:
        self._net.frames.append(frame)
        other = self.other
        if self.is_open and not self.is_cut and other is not None and other.is_open:
            soon(lambda: other.on_frame(frame))

    def has_room(self) -> bool:
        return True

    def close(self) -> None:
        self.on_open = self.on_close = lambda: None
        self.on_frame = lambda frame: None
        was_open, self.is_open, self.is_closed = self.is_open, False, True
        if was_open and not self.is_cut and self.other is not None:
            soon(lambda other: other.on_close(), self.other)
        self.on_end()

    async def closed(self) -> None:
        """It is closed at once."""


class Net:
    """What a node does for direct connections: claims, the registry, and delivery in order."""

    def __init__(self) -> None:
        self.talkers: list[Talker] = []
        self.claimed: dict[str, Talker] = {}
        self.registered: dict[str, Any] = {}  # what the registry says
        self.seen: list[Message] = []
        self.frames: list[str] = []
        self.connections: list[FakeConnection] = []
        self.is_blocked = False  # no channel ever opens
        self.on_connecting: Callable[[], None] = lambda: None
        self.on_describing: Callable[[], None] = lambda: None
        self.refuses: Callable[[Message], int] = lambda message: 0
        self._askers: dict[tuple[str, Any], Talker] = {}

    def received(self, talker: Talker, message: Message) -> None:
        if talker.is_gone:
            return
        self.seen.append(message)
        to, kind, body = message["to"], message["type"], message["body"]
        is_response = kind == "response"
        if not is_response:
            self._askers[message["from"], message["id"]] = talker
        if code := self.refuses(message):
            talker.bring(answer_to(message, code, "The node refuses."))
        elif SM.fullmatch(to):
            for address in body.get("resources") or body.get("subscribe"):
                self.claimed.pop(address, None)
                if kind == "subscribe":
                    self.claimed[address] = talker
            talker.bring(answer_to(message, 200, ""))
        elif to.startswith("domain://registry."):
            value = self.registered.get(body["resource"])
            answer = answer_to(message, 200 if value else 404, "")
            answer["body"] |= {"value": value} if value else {}
            talker.bring(answer)
        else:
            asker = self._askers.get((to, message["id"])) if is_response else None
            found = asker or self.claimed.get(to) or self._below(to)
            if found is not None:
                found.bring(message)
            elif not is_response:
                talker.bring(answer_to(message, 404, f"Nobody listens to {to}."))

    def _below(self, to: str) -> Talker | None:
        here = (each for each in self.talkers if not each.is_gone)
        return next((each for each in here if to.startswith(f"{each.url}/")), None)


class Talker:
    """A runtime with a hyperty that answers, and keeps what it is told; it is its own resolver."""

    def __init__(
        self,
        net: Net,
        *,
        url: str = "",
        timers: dict[str, int] | None = None,
        handlerId: str = "",  # noqa: N803 (as in the cases)
        hasP2P: bool = True,  # noqa: N803
    ) -> None:
        number = len(net.talkers) + 1
        net.talkers.append(self)
        self.net = net
        self.url = url or f"runtime://d/{number}"
        self.app = f"{self.url}/app"
        self.stub = f"runtime://d/protostub/{number}"
        self.faults: list[Fault] = []
        self.got: list[Any] = []  # numbers, in their order
        self.told: list[int] = []  # codes of answers to what awaited none
        self.came: list[Message] = []  # requests that wait for a reply
        self.by_channel = 0
        self.states: list[str] = []
        self.is_gone = False  # without a word to anybody
        self.settings = Settings("d")
        self.bus = MessageBus(self.url, self)
        self.bus.on_error(self.faults.append)
        self.bus.add_listener(f"{self.url}/status", self._is_told)
        self.bus.add_listener(self.app, self.heard)
        chosen = {key: at if key == "peers" else at / 1000 for key, at in (timers or {}).items()}
        settings = P2PSettings(handler_id=handlerId, timers=P2PTimers(**chosen))  # type: ignore[arg-type]
        self.p2p: Any = PeerToPeer(settings, self) if hasP2P else None  # type: ignore[arg-type]

    def _is_told(self, message: Message) -> None:
        if "peer" in message["body"]:
            self.states.append(message["body"]["value"])

    def send(self, message: Message, size: int, stub: str) -> str:
        self.net.received(self, message)
        return self.stub

    def bring(self, message: Message) -> None:
        if not self.is_gone:
            soon(self.bus.receive, copy_of(message)[0], self.stub)

    def heard(self, message: Message) -> None:
        body = message["body"]
        if message["type"] == "response":
            self.told.append(body["code"])
            return
        self.by_channel += "/p2p" in body["via"]
        self.got.append(body["value"]["n"])
        if message["type"] != "update":
            value = {"code": 200, "value": {"n": body["value"]["n"]}, "cameBy": body["via"]}
            self.reply(message, value)

    def reply(self, request: Message, body: Any) -> None:
        head = {"id": request["id"], "type": "response", "from": request["to"]}
        self.bus.post_message({**head, "to": request["from"], "body": body})

    def ask(self, to: str, n: int, **more: Any) -> asyncio.Task[Message]:
        body = {"value": {"n": n}, **more}
        message = {"type": "create", "from": self.app, "to": to, "body": body}
        return asyncio.create_task(self.bus.request(message, 3600.0))

    def want(self, other: Talker, n: int) -> asyncio.Task[Message]:
        handler = other.p2p.handler if other.p2p else f"{other.url}/p2phandler/none"
        return self.ask(other.app, n, p2p=True, p2pHandler=handler)

    def remote(self, other: Talker) -> RemoteRuntime:
        found = self.p2p._known.of(other.url)
        assert found is not None
        return found

    def way_to(self, other: Talker) -> str:
        found = self.p2p._known.of(other.url)
        return "node" if found is None else str(found.link.way)


HELD: dict[str, Callable[[Message], bool]] = {
    "any": lambda message: True,
    "confirm": lambda message: message["body"].get("method") == "confirm",
    "data": lambda message: "data" in (message["body"].get("value") or {}),
}


@dataclass
class Scene:
    """Runtimes with names, as p2p-cases.jsonl has them; "{alice}" is a runtime's URL."""

    net: Net = field(default_factory=Net)
    named: dict[str, Talker] = field(default_factory=dict)
    answers: list[list[Any]] = field(default_factory=list)
    _let_in: dict[str, Callable[[], None]] = field(default_factory=dict)
    _asking: set[asyncio.Task[None]] = field(default_factory=set)

    async def play(self, steps: list[list[Any]]) -> None:
        for step in steps:
            act, *words = self._filled(step)
            name = re.sub("([A-Z])", r"_\1", act).lower()
            found = [
                self.named.get(each, each) if isinstance(each, str) else each for each in words
            ]
            try:
                done = getattr(self, f"do_{name}")(*found)
                if done is not None:
                    await done
            except AssertionError as error:
                raise AssertionError(f"{step}: {error}") from error
        await self.end()

    async def end(self) -> None:
        """All runtimes close, and nothing is left of them."""
        for talker in self.net.talkers:
            if talker.p2p is not None:
                await talker.p2p.close()
        assert all(each.is_closed for each in self.net.connections), "no connection is left"
        assert not [each for each in self.net.claimed if each.startswith("connection:")]
        for task in self._asking:
            task.cancel()

    def _filled(self, value: Any) -> Any:
        if isinstance(value, str):
            return re.sub(r"\{(\w+)(\.handler)?\}", self._fill, value)
        if isinstance(value, list):
            return [self._filled(each) for each in value]
        if isinstance(value, dict):
            return {key: self._filled(each) for key, each in value.items()}
        return value

    def _fill(self, found: re.Match[str]) -> str:
        talker = self.named[found[1]]
        return str(talker.p2p.handler) if found[2] else talker.url

    async def do_runtime(self, name: str, options: dict[str, Any]) -> None:
        self.named[name] = made = Talker(self.net, **options)
        if made.p2p is not None:
            await made.p2p.start()

    async def do_runtimes(self, *names: str) -> None:
        for name in names:
            await self.do_runtime(name, {})

    async def do_connected(self, timers: dict[str, int] | None = None) -> None:
        for name in ("alice", "bob"):
            await self.do_runtime(name, {"timers": timers})
        alice, bob = self.named["alice"], self.named["bob"]
        await self.do_want(alice, bob)
        assert alice.way_to(bob) == bob.way_to(alice) == "channel"

    async def do_turn(self, milliseconds: int = 0) -> None:
        await asyncio.sleep(milliseconds / 1000 + NOW)

    def do_cut(self) -> None:
        for each in self.net.connections:
            each.is_cut = True

    def do_blocked(self, is_blocked: bool) -> None:
        self.net.is_blocked = is_blocked

    def do_gone(self, one: Talker, is_gone: bool) -> None:
        one.is_gone = is_gone

    def do_empty(self, one: Talker) -> None:
        one.got, one.by_channel = [], 0

    def do_bye(self, one: Talker, other: Talker, reason: str) -> None:
        one.remote(other).bye(reason)

    def do_mark(self) -> None:
        self.net.seen.clear()
        self.net.frames.clear()

    def do_break(self) -> None:
        for each in self.net.connections:
            if each.is_open:
                soon(each.on_close)

    async def do_stop(self, one: Talker) -> None:
        await one.p2p.close()
        await self.do_turn(5_000)

    def do_refuse(self, code: int, one: Talker) -> None:
        def refuses(message: Message) -> int:
            return code if (message["type"], message["to"]) == ("create", one.p2p.handler) else 0

        self.net.refuses = refuses

    def do_mute(self, is_mute: bool) -> None:
        """No side can describe itself."""

        def describing() -> None:
            if is_mute:
                raise BadDescription("no socket is left")

        self.net.on_describing = describing

    def do_forbid_at_opening(self, one: Talker, other: Talker) -> None:
        """Both are ordered to hang up at the moment when their channel opens."""

        def connecting() -> None:
            one.remote(other).forbid()
            other.remote(one).forbid()

        self.net.on_connecting = connecting

    async def do_start_again(self, one: Talker, other: Talker) -> None:
        """A runtime starts again, and knows nothing of its set-up."""
        one.remote(other).dialling.cancel()  # type: ignore[union-attr]
        await self.do_turn()
        one.remote(other).state = State.NONE

    def do_hold(self, one: Talker, what: str) -> None:
        """What comes waits from the first message on that is such a one."""
        held: list[Message] = []
        bring = one.bring

        def keep(message: Message) -> None:
            if held or HELD[what](message):
                held.append(message)
            else:
                bring(message)

        def let_in() -> None:
            one.bring = bring  # type: ignore[method-assign]
            for message in held:
                bring(message)

        one.bring = keep  # type: ignore[method-assign]
        self._let_in[one.stub] = let_in

    def do_let_in(self, one: Talker) -> None:
        self._let_in[one.stub]()

    # --- what is said -----------------------------------------------------------------------------

    async def do_want(self, one: Talker, other: Talker, n: int = -1) -> None:
        self._came(await one.want(other, n), n)
        await self.do_turn()

    def do_wanting(self, one: Talker, other: Talker, n: int) -> None:
        self._later(one.want(other, n))

    def _later(self, answer: asyncio.Task[Any]) -> None:
        self._asking.add(answer)
        answer.add_done_callback(self._asking.discard)

    async def do_ask(
        self, one: Talker, other: Talker, n: int, way: str = "", more: Any = None
    ) -> None:
        self._came(await one.ask(other.app, n, **more or {}), n, way)
        await self.do_turn()

    def _came(self, answer: Message, n: int, way: str = "") -> None:
        body = answer["body"]
        assert body.get("value") == {"n": n}, body
        came = "channel" if "/p2prequester/" in body["cameBy"] else "node"
        assert came == (way or came)

    def do_tell(self, one: Talker, other: Talker, first: int, count: int) -> None:
        for n in range(first, first + count):
            self._tell(one, other.app, n, {}, "app")

    def _tell(self, one: Talker, to: str, n: int, more: Any, sender: str) -> None:
        head = {"type": "update", "from": f"{one.url}/{sender}", "to": to}
        one.bus.post_message({**head, "body": {"value": {"n": n}, **more}})

    async def do_ask_at(
        self, one: Talker, to: str, numbers: list[int], more: Any = None, way: str = ""
    ) -> None:
        answers = [one.ask(to, n, **more or {}) for n in numbers]
        for n, answer in zip(numbers, answers, strict=True):
            self._came(await answer, n, way)
        await self.do_turn()

    async def do_tell_at(
        self, one: Talker, to: str, n: int, more: Any = None, sender: str = "app"
    ) -> None:
        self._tell(one, to, n, more or {}, sender)
        await self.do_turn()

    def do_asking(self, one: Talker, to: str, n: int, more: Any = None) -> None:
        found: list[Any] = []
        self.answers.append(found)

        async def ask() -> None:
            body = (await one.ask(to, n, **more or {}))["body"]
            found.extend([body["code"], body.get("value") if body["code"] == 200 else None])

        self._later(asyncio.create_task(ask()))

    def do_unasked(self, one: Talker) -> None:
        one.came, self.answers = [], []

    def do_collects(self, one: Talker, address: str) -> None:
        one.bus.add_listener(address, lambda message: one.came.append(message))

    def do_hears(self, one: Talker, address: str) -> None:
        one.bus.add_listener(address, one.heard)

    def do_reply(self, one: Talker, index: int, body: Any) -> None:
        one.reply(one.came[index], body)

    def do_register(self, url: str, one: Talker, how: dict[str, bool] | None = None) -> None:
        """The registry knows an address, without a handler if `how` is empty."""
        self.net.claimed[url] = one
        how = {"isTold": True} if how is None else how
        if "isUnknown" not in how:
            self.net.registered[url] = {"runtime": one.url, **(one.p2p.registration if how else {})}
        if "isSilent" in how:
            self.do_collects(one, url)
        elif "isHeard" not in how:
            self.do_hears(one, url)

    def do_unknown(self, url: str) -> None:
        """The registry no longer knows an address."""
        del self.net.registered[url]

    def do_unregistered(self, one: Talker, address: str) -> None:
        """A hyperty of that address is in no registry."""
        one.bus.unregistered.add(address)

    def do_unregister(self, url: str, one: Talker) -> None:
        one.bus.remove_all_listeners_of(url)

    async def do_invite(self, one: Talker, other: Any, value: Any, *codes: int) -> None:
        """Invite by hand, as often as there are codes, which are answered."""
        sender = "connection://d/1/subscription"
        to = other if isinstance(other, str) else other.p2p.handler
        source = value.get("source", "runtime://d/p2prequester/1")
        self.net.claimed[sender] = one
        one.bus.add_listener(sender, lambda message: None)  # which does not say what it is
        for code in codes or (0,):
            body = {"source": source, "value": value}
            said = {"type": "create", "from": sender, "to": to, "body": body}
            answer = await one.bus.request(said, 60.0)
            assert not code or answer["body"]["code"] == code, answer
            await self.do_turn()
        del self.net.claimed[sender]

    def do_forge(self, one: Talker, other: Talker, senders: list[str]) -> None:
        for n, sender in enumerate(senders):
            head = {"id": f"x{n}", "type": "create", "from": sender, "to": other.app}
            body = {"value": {"n": 99}, "auth": True}
            one.remote(other).send({**head, "body": body}, 100)

    def do_order(self, one: Talker, sender: str, about: str, at: str = "handler") -> None:
        """The node orders to hang up."""
        to = one.p2p._known.of(about).via if at == "via" else one.p2p.handler
        body = {"method": "disconnect", "params": [{"peer": about}]}
        one.bring({"id": sender, "type": "execute", "from": sender, "to": to, "body": body})

    # --- what is to be ----------------------------------------------------------------------------

    def do_way(self, one: Talker, other: Talker, way: str) -> None:
        assert one.way_to(other) == way

    def do_states(self, one: Talker, expected: list[str]) -> None:
        assert one.states == expected

    def do_last(self, one: Talker, state: str) -> None:
        assert one.states[-1] == state, one.states

    def do_count(self, one: Talker, state: str, n: int) -> None:
        assert one.states.count(state) == n, one.states

    def do_never(self, one: Talker, state: str) -> None:
        assert state not in one.states

    def do_got(self, one: Talker, expected: list[int]) -> None:
        assert one.got == expected

    def do_got_not(self, one: Talker, n: int) -> None:
        assert n not in one.got

    def do_by_channel(self, one: Talker, n: int) -> None:
        assert one.by_channel == n

    def do_answers(self, expected: list[list[Any]]) -> None:
        assert self.answers == expected

    def do_refusals(self, one: Talker, n: int) -> None:
        assert one.told == [503] * n

    def do_seen_nothing(self) -> None:
        assert self.net.seen == []

    def do_seen(self, kind: str, least: int) -> None:
        assert len(self._seen(kind)) >= least

    def do_lookups(self, n: int) -> None:
        assert len(self._seen("read", "domain://registry.d")) == n

    def do_invited(self, one: Talker, n: int) -> None:
        assert len(self._seen("create", one.p2p.handler)) == n

    def do_tries(self, one: Talker, least: int, most: int) -> None:
        assert least <= len(self._seen("create", one.p2p.handler)) <= most

    def do_frames(self, text: str, is_there: bool) -> None:
        said = (each.replace('": ', '":') for each in self.net.frames)
        assert any(text in each for each in said) is is_there

    def do_no_errors(self) -> None:
        assert [each for talker in self.net.talkers for each in talker.faults] == []

    def do_counter(self, one: Talker, reason: str, n: int) -> None:
        assert one.bus.counters[reason] == n

    def do_known(self, one: Talker, n: int) -> None:
        assert len(one.p2p.known) == n

    def do_open(self, n: int) -> None:
        assert sum(not each.is_closed for each in self.net.connections) == n

    def do_objects(self, n: int) -> None:
        assert self._claimed("connection:") == n

    def do_claims(self, n: int) -> None:
        assert self._claimed("/p2prequester/") == n

    def do_claimed(self, address: str, one: Talker) -> None:
        assert self.net.claimed[address] is one

    def do_requester(self, one: Talker, other: Talker, is_one: bool) -> None:
        assert one.remote(other).is_requester is is_one

    def do_redial(self, one: Talker, other: Talker, has_one: bool) -> None:
        assert one.remote(other).has_redial is has_one

    def do_explain(self, one: Talker, to: str, sender: str, way: str, why: str) -> None:
        told = one.p2p.explain(to, sender)
        assert told[0] == way and told[1].startswith(why), told

    def do_channels(self, one: Talker, n: int) -> None:
        assert sum(each.way == "channel" for each in one.p2p.connections) == n

    async def do_until_node(self, one: Talker, other: Talker) -> None:
        while one.way_to(other) != "node":
            await self.do_turn(100)

    def _seen(self, kind: str, to: str = "") -> list[Message]:
        here = (each for each in self.net.seen if each["type"] == kind)
        return [each for each in here if to in ("", each["to"])]

    def _claimed(self, text: str) -> int:
        return sum(text in each for each in self.net.claimed)


def play(
    monkeypatch: pytest.MonkeyPatch, steps: list[list[Any]], scene: Scene | None = None
) -> None:
    """Do what a case says, in a time of its own."""
    scene = scene or Scene()
    monkeypatch.setattr(set_up, "RtcConnection", partial(FakeConnection, scene.net))
    with asyncio.Runner(loop_factory=FakeLoop) as runner:
        runner.run(scene.play(steps))
