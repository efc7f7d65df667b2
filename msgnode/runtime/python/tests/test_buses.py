"""The buses: the cases that both languages share, and what is Python's alone.

js/tests/bus-cases.jsonl has the cases, js/tests/bus.test.mjs plays them, too; R numbers are those
of docs/reference/runtime.md.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from bus_harness import A, B, Bench, R, message, turn
from fake_clock import FakeClock, settled
from shared_cases import cases, like

from msgnode.runtime.python import listeners
from msgnode.runtime.python.faults import Fault
from msgnode.runtime.python.message_bus import MessageBus
from msgnode.runtime.python.messages import BadMessage, Message
from msgnode.runtime.python.minibus import MiniBus

STUB, HOME = "runtime://f/protostub/1", "runtime://d/protostub/home"


def named(value: Any) -> Any:
    """{"$x": [text, n]} is a text n times, {"$list": n} so many addresses."""
    if isinstance(value, list):
        return [named(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "$x" in value:
        return value["$x"][0] * value["$x"][1]
    if "$list" in value:
        return [f"hyperty://d/{n}" for n in range(value["$list"])]
    return {key: named(each) for key, each in value.items()}


def message_to(to: Any, more: Message) -> Message:
    """A message with other fields than usual; null is no body."""
    made = {"type": "read", "from": A, "to": to, "body": {"n": 1}, **more}
    if made["body"] is None:
        del made["body"]
    return made


class Side:
    """A bus, what left it, and where that goes."""

    def __init__(self, url: str, stub: str) -> None:
        self.bus = MessageBus(url, self)
        self.bus.home_stub = HOME
        self.stub = stub
        self.sent: list[Message] = []
        self.other: Side | None = None
        self.faults: list[Fault] = []
        self.bus.on_error(self.faults.append)

    def send(self, message: Message, size: int, stub: str) -> str:
        self.sent.append({**message, "through": stub or self.stub})
        if self.other is not None:
            assert len(self.sent) < 20, "it goes round"
            self.other.bus.receive(message, self.other.stub)
        return stub or self.stub


class Play:
    """The steps of a case: a bus with listeners, handlers and a way outside."""

    def __init__(self) -> None:
        self._clock = FakeClock()
        self._sides = {"d": Side(R, STUB)}
        self._side = self._sides["d"]
        self._heard: dict[str, list[Message]] = {}
        self._order: list[Any] = []
        self._answers: dict[str, list[Message]] = {}
        self._handled: dict[str, list[Message]] = {}
        self._deciding: dict[str, tuple[Message, asyncio.Future[Any]]] = {}
        self._items: dict[str, Any] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def steps(self, steps: list[list[Any]]) -> None:
        for step in steps:
            done = self._act(*step)
            if done is not None:
                await done

    def _act(self, act: str, *words: Any) -> Any:
        return getattr(self, f"do_{act}")(*map(named, words))

    async def stop(self) -> None:
        await self._side.bus.close()

    # --- what happens -----------------------------------------------------------------------------

    do_settle = staticmethod(settled)

    async def do_wait(self, milliseconds: float) -> None:
        await self._clock.turn(milliseconds / 1000)

    async def do_repeat(self, times: int, *steps: list[Any]) -> None:
        for _ in range(times):
            await self.steps([*steps])

    def do_neighbour(self) -> None:
        """A runtime of f; each of the two reaches everything through the other."""
        d, f = self._side, Side("runtime://f/1", "runtime://d/protostub/1")
        d.other, f.other = f, d
        self._sides["f"] = f

    def do_at(self, name: str) -> None:
        self._side = self._sides[name]

    def do_listen(self, name: str, to: str, *reactions: list[Any]) -> None:
        heard = self._heard[name] = []

        def listen(got: Message) -> None:
            heard.append(got)
            self._order.append([name, (got.get("body") or {}).get("n", 1)])
            for each in reactions:
                self._react(name, got, each)

        self._items[name] = self._side.bus.add_listener(to, listen)

    def _react(self, name: str, got: Message, reaction: list[Any]) -> None:
        act, *words = reaction
        if act == "change":
            got["body"]["list"].append("changed")
        elif act == "fail":
            raise RuntimeError("out of order")
        elif act == "replies":
            self.do_reply(name, {"code": words[len(self._heard[name]) - 1]})
        elif act != "if":
            self._act(act, *words)
        elif like(words[0], got) == words[0]:
            self._react(name, got, words[1])

    def _waits(self, name: str) -> Callable[[Message], None]:
        return self._answers.setdefault(name, []).append

    def do_post(self, to: Any, more: Message | None = None, name: str = "") -> None:
        posted = message_to(to, more or {})
        self._side.bus.post_message(posted, self._waits(name) if name else None)
        if "body" in posted:
            posted["body"]["late"] = True

    def do_retry(self, to: str, more: Message, times: int, name: str) -> None:
        async def ask() -> None:
            asked = message_to(to, more)
            take(await self._side.bus.post_message_with_retries(asked, times))

        take = self._waits(name)
        self._tasks.append(asyncio.create_task(ask()))

    def do_comes(self, to: str, more: Message, stub: str = "") -> None:
        self._side.bus.receive(message_to(to, {"id": 1, **more}), stub or self._side.stub)

    def do_reply(self, name: str, body: Any, more: Message | None = None) -> None:
        asked = self._heard[name][-1]
        head = {"id": asked["id"], "type": "response", "from": asked["to"], "to": asked["from"]}
        self._side.bus.post_message({**head, "body": body, **(more or {})})

    def do_expect(self, address: str, id_: Any, name: str) -> None:
        self._side.bus.add_response_listener(address, id_, self._waits(name))

    def do_leave(self, address: str) -> None:
        self._side.bus.remove_all_listeners_of(address)

    async def do_close(self) -> None:
        await self._side.bus.close()

    def do_publish(self, name: str, address: str) -> None:
        self._items[name] = self._side.bus.add_publish(address)

    def do_forward(self, name: str, address: str, to: str) -> None:
        self._items[name] = self._side.bus.add_forward(address, to)

    def do_remove(self, name: str) -> None:
        self._items[name].remove()

    def do_handle(self, direction: str, name: str, match: Message, result: Any) -> None:
        """A handler that decides later, fails, or has this result, of what is like `match`."""
        handled = self._handled[name] = []

        def handle(got: Message, _: Any) -> Any:
            handled.append(got)
            if like(match, got) != match:
                return None
            if result == "fail":
                raise RuntimeError("out of order")
            if result != "later":
                return result
            future = asyncio.get_running_loop().create_future()
            self._deciding[name] = got, future
            return future

        pipeline = getattr(self._side.bus, f"pipeline_{direction}")
        pipeline.use(handle)

    def do_let(self, name: str, more: Message) -> None:
        """The handler that thought about a message lets it pass, with more in its body."""
        got, future = self._deciding[name]
        future.set_result({**got, "body": {**got["body"], **more}})

    def do_quiet(self) -> None:
        self._order.clear()

    # --- what is so -------------------------------------------------------------------------------

    def _are(self, found: list[Message], expected: tuple[Any, ...]) -> None:
        assert len(found) == len(expected)
        for each, one in zip(found, expected, strict=True):
            assert like(one, each) == one

    def do_heard(self, name: str, *expected: Message) -> None:
        self._are(self._heard[name], expected)

    def do_handled(self, name: str, *expected: Message) -> None:
        self._are(self._handled[name], expected)

    def do_sent(self, *expected: Message) -> None:
        self._are(self._side.sent, expected)

    def do_answered(self, name: str, *expected: Any) -> None:
        bodies = ({"body": {"code": each}} if isinstance(each, int) else each for each in expected)
        self._are(self._answers.get(name, []), tuple(bodies))

    def do_order(self, *expected: Any) -> None:
        assert self._order == [*expected]

    def do_ids(self, name: str, *expected: Any) -> None:
        """ "+1" is one more than the first, which differs from one bus to the next."""
        found = [each["id"] for each in self._heard[name]]
        text = re.compile(r"\+(\d)")
        is_more = [isinstance(each, str) and text.fullmatch(each) for each in expected]
        ids = [found[0] + int(m[1]) if m else x for m, x in zip(is_more, expected, strict=True)]
        assert found == ids

    def do_counter(self, name: str, count: int) -> None:
        assert self._side.bus.counters[name] == count

    def do_faults(self, *reasons: str) -> None:
        assert [each.reason for each in self._side.faults] == [*reasons]

    def do_errors(self, count: int, length: int) -> None:
        assert [len(each["text"]) for each in self._side.bus.errors] == [length] * count

    def do_fewer(self, name: str, count: int) -> None:
        assert len(self._heard[name]) < count

    def do_timers(self, count: int) -> None:
        assert self._clock.timers == count


@pytest.mark.parametrize("case", cases("bus"))
async def test_a_bus(case: dict[str, Any]) -> None:
    play = Play()
    await play.steps(case["steps"])
    await play.stop()


# --- what is Python's alone -----------------------------------------------------------------------


async def test_r11_what_a_sandbox_posts_goes_up_even_to_itself() -> None:
    up: list[Message] = []
    bus = MiniBus(up.append)
    got: list[Message] = []
    bus.add_listener(B, got.append)
    bus.post_message(message(B))
    await turn()
    assert (len(up), len(got)) == (1, 0)
    bus.deliver(up[0])
    await turn()
    assert len(got) == 1


@pytest.mark.parametrize(
    ("to", "listens", "exact", "star"),
    [
        (B, True, 1, 0),
        ("hyperty-runtime://d/1/sm", True, 1, 0),
        ("comm://d/1", True, 1, 1),
        (R + "/sm", True, 1, 1),
        ("comm://d/1", False, 0, 1),
        (B, False, 0, 1),
    ],
)
async def test_r12_the_star_of_a_sandbox(to: str, listens: bool, exact: int, star: int) -> None:
    bus = MiniBus(lambda _: None)
    got: list[Message] = []
    every: list[Message] = []
    bus.add_listener("*", every.append)
    if listens:
        bus.add_listener(to, got.append)
    bus.deliver(message(to))
    await turn()
    assert (len(got), len(every)) == (exact, star)


async def test_a_coroutine_listener_gets_its_messages_in_order(bench: Bench) -> None:
    done: list[int] = []
    ended = asyncio.Event()

    async def slow_then_fast(got: Message) -> None:
        await asyncio.sleep(0 if done else 0.02)
        done.append(got["id"])
        if len(done) == 3:
            ended.set()

    bench.bus.add_listener(B, slow_then_fast)
    for number in range(1, 4):
        bench.bus.post_message(message(B, id=number))
    async with asyncio.timeout(10):
        await ended.wait()
    assert done == [1, 2, 3]


async def test_a_listener_that_never_returns_has_a_bounded_queue(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "MAX_LISTENER_QUEUED", 2)
    forever = asyncio.Event()

    async def hangs(_: Message) -> None:
        await forever.wait()

    bench.bus.add_listener(B, hangs)
    codes: list[int] = []
    for _ in range(4):
        bench.bus.post_message(message(B, "read"), lambda each: codes.append(each["body"]["code"]))
        await turn()
    assert codes == [503]
    forever.set()
    await turn()


async def test_a_bad_header_is_answered_by_name_or_raised(bench: Bench) -> None:
    got: list[Message] = []
    bench.bus.post_message({"from": A, "to": B}, got.append)
    bench.bus.post_message({"type": "read", "from": A, "to": 7}, got.append)
    bench.bus.post_message({"type": "read", "from": A, "to": B, "body": 1}, got.append)
    bench.bus.post_message(
        {"type": "read", "from": A, "to": B, "body": {"x": object()}}, got.append
    )
    await turn()
    assert [each["body"]["code"] for each in got] == [400] * 4
    words = [each["body"]["desc"] for each in got]
    assert all(
        word in text for word, text in zip(("type", "to", "body", "JSON"), words, strict=True)
    )
    with pytest.raises(BadMessage, match="from"):
        bench.bus.post_message({"type": "read", "to": B})


async def test_request_raises_when_nobody_answers_in_time(bench: Bench) -> None:
    bench.listen(B)
    with pytest.raises(TimeoutError, match=B):
        await bench.bus.request(message(B, "read"), 0.05)
