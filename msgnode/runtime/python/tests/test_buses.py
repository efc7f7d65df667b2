"""The rules of both buses; the numbers are those of the conformance cases of a runtime."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from msgnode.runtime.python import bus as bus_module
from msgnode.runtime.python.bus import Bus, Fault, Listening
from msgnode.runtime.python.message_bus import MessageBus
from msgnode.runtime.python.messages import BadMessage, Message
from msgnode.runtime.python.minibus import MiniBus

R = "runtime://d/1"
A, B, FAR = "hyperty://d/a", "hyperty://d/b", "hyperty://f/x"


class Out:
    """The way outside, as a list."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.stubs: list[str] = []
        self.stub = "runtime://f/protostub/1"

    def send(self, message: Message, size: int, stub: str) -> str:
        self.sent.append(message)
        self.stubs.append(stub)
        return stub or self.stub


class Bench:
    """A MessageBUS, what left it, and what its error hook was told."""

    def __init__(self, **options: Any) -> None:
        self.faults: list[Fault] = []
        self.out = Out()
        self.bus = MessageBus(R, self.out, **options)
        self.bus.on_error(self.faults.append)

    def listen(self, address: str, bus: Bus | None = None) -> list[Message]:
        got: list[Message] = []
        (bus or self.bus).add_listener(address, got.append)
        return got


@pytest.fixture
def bench() -> Bench:
    return Bench()


def message(to: Any, type_: str = "update", sender: str = A, **more: Any) -> Message:
    return {"type": type_, "from": sender, "to": to, "body": {"value": [1]}, **more}


def answer(to: str, id_: Any, body: Any, sender: str = B) -> Message:
    return {"id": id_, "type": "response", "from": sender, "to": to, "body": body}


async def turn() -> None:
    """Let the queue of the bus empty itself."""
    for _ in range(5):
        await asyncio.sleep(0)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.005)


async def test_r1_each_listener_gets_a_copy_of_its_own(bench: Bench) -> None:
    first, second = bench.listen(B), bench.listen(B)
    posted = message(B)
    bench.bus.post_message(posted)
    posted["body"]["value"].append("changed by the sender")
    await turn()
    assert first == second and first[0] is not second[0]
    first[0]["body"]["value"].append(2)
    assert second[0]["body"]["value"] == [1]


async def test_r2_a_listener_that_raises_stops_nobody(bench: Bench) -> None:
    def broken(_: Message) -> None:
        raise ZeroDivisionError

    bench.bus.add_listener(B, broken)
    got = bench.listen(B)
    bench.bus.post_message(message(B))
    await turn()
    assert len(got) == 1
    assert [fault.reason for fault in bench.faults] == ["listener.failed"]


async def test_r3_who_is_removed_while_a_message_is_delivered_is_not_called(bench: Bench) -> None:
    called = []
    listenings: list[Listening] = []

    def take(name: str, removes: int) -> None:
        def listen(_: Message) -> None:
            called.append(name)
            listenings[removes].remove()

        listenings.append(bench.bus.add_listener(B, listen))

    take("removes itself", 0)
    take("removes the next", 2)
    take("is removed", 2)
    take("is the last", 3)
    bench.bus.post_message(message(B))
    await turn()
    assert called == ["removes itself", "removes the next", "is the last"]


async def test_r4_what_a_listener_posts_comes_after_the_present_message(bench: Bench) -> None:
    seen = []

    def first(got: Message) -> None:
        seen.append(("first", got["body"]["value"]))
        if got["body"]["value"] == 1:
            bench.bus.post_message({**message(B), "body": {"value": 2}})

    bench.bus.add_listener(B, first)
    bench.bus.add_listener(B, lambda got: seen.append(("second", got["body"]["value"])))
    bench.bus.post_message({**message(B), "body": {"value": 1}})
    assert seen == []  # B1: never inside the caller
    await turn()
    assert seen == [("first", 1), ("second", 1), ("first", 2), ("second", 2)]


async def test_r5_answers_are_known_by_sender_and_id_not_by_their_texts_joined(
    bench: Bench,
) -> None:
    bench.listen(B)
    one: list[Message] = []
    other: list[Message] = []
    bench.bus.post_message(message(B, "read", "a1", id=1), one.append)
    bench.bus.post_message(message(B, "read", "a", id=11), other.append)
    bench.bus.post_message(answer("a", 11, {"code": 200}))
    await turn()
    assert (len(one), len(other)) == (0, 1)
    bench.bus.post_message(answer("a1", 1, {"code": 200}))
    await turn()
    assert (len(one), len(other)) == (1, 1)


async def test_r6_an_id_as_text_and_as_number_is_the_same(bench: Bench) -> None:
    asked = bench.listen(B)
    got: list[Message] = []
    assert bench.bus.post_message(message(B, "read", id="7"), got.append) == "7"
    await turn()
    bench.bus.post_message(answer(asked[0]["from"], 7, {"code": 200}))
    await turn()
    assert [(each["from"], each["to"]) for each in got] == [(B, A)]


async def test_r7_provisional_answers_begin_the_wait_anew(bench: Bench) -> None:
    bench.listen(B)
    codes: list[int] = []
    id_ = bench.bus.post_message(
        message(B, "read"), lambda each: codes.append(each["body"]["code"]), 0.5
    )
    await turn()
    for code in (100, 100, 200):
        await asyncio.sleep(0.25)
        bench.bus.post_message(answer(A, id_, {"code": code}))
        await turn()
    assert codes == [100, 100, 200]


async def test_r7_but_not_for_ever(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_module, "MAX_RENEWALS", 1)
    bench.listen(B)
    ended = asyncio.Event()
    codes: list[int] = []

    def take(each: Message) -> None:
        codes.append(each["body"]["code"])
        if codes[-1] == 408:
            ended.set()

    id_ = bench.bus.post_message(message(B, "read"), take, 0.05)
    async with asyncio.timeout(10):
        while not ended.is_set():
            bench.bus.post_message(answer(A, id_, {"code": 100}))
            await asyncio.sleep(0.01)
    assert codes[-1] == 408


async def test_r8_no_answer_is_a_408_and_a_late_one_goes_to_listeners(bench: Bench) -> None:
    bench.listen(B)
    got: list[Message] = []
    id_ = bench.bus.post_message(message(B, "read"), got.append, 0.05)
    await until(lambda: got)
    body = got[0]["body"]
    assert (body["code"], body["desc"], body["value"]["to"]) == (408, "Response timeout!", B)
    assert "from" not in got[0] and "to" not in got[0]
    bench.bus.post_message(answer(A, id_, {"code": 200}))
    await turn()
    assert len(got) == 1
    late = bench.listen(A)
    bench.bus.post_message(answer(A, id_, {"code": 200}))
    await turn()
    assert len(late) == 1


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"code": "200"}, 200),
        ({"code": "2XX"}, 200),
        ({"code": "error"}, 500),
        ({}, 500),
        (None, 500),
    ],
)
async def test_r9_odd_codes_end_the_wait_once(bench: Bench, body: Any, code: int) -> None:
    bench.listen(B)
    got: list[int] = []
    id_ = bench.bus.post_message(message(B, "read"), lambda each: got.append(each["body"]["code"]))
    for _ in range(2):
        bench.bus.post_message(answer(A, id_, body))
    await turn()
    assert got == [code]


async def test_r10_a_list_in_to_is_split_without_repeats(bench: Bench) -> None:
    got, other = bench.listen(B), bench.listen("hyperty://d/c")
    bench.bus.post_message(message([B, "hyperty://d/c", B]))
    await turn()
    assert [each["to"] for each in got + other] == [B, "hyperty://d/c"]


async def test_more_recipients_than_a_hundred_are_refused(bench: Bench) -> None:
    got: list[Message] = []
    to = [f"hyperty://d/{number}" for number in range(101)]
    bench.bus.post_message(message(to, "create"), got.append)
    await turn()
    assert got[0]["body"]["code"] == 400


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


async def test_r13_who_leaves_the_bus_gets_503_for_what_he_waits_for(bench: Bench) -> None:
    bench.listen(B)
    got: list[Message] = []
    bench.bus.post_message(message(B, "read"), got.append)
    await turn()
    bench.bus.remove_all_listeners_of(A)
    assert got[0]["body"]["code"] == 503


async def test_r14_an_address_is_local_by_segments(bench: Bench) -> None:
    bench.bus.post_message(message("runtime://d/10/x", "read"))
    await turn()
    assert [each["to"] for each in bench.out.sent] == ["runtime://d/10/x"]
    assert not bench.bus.is_local("comm://x/runtime://d/1")


async def test_r15_nobody_below_the_runtime(bench: Bench) -> None:
    got: list[Message] = []
    bench.bus.post_message(message(R + "/nobody", "read"), got.append)
    bench.bus.post_message(message(R + "/nobody/status"))
    await turn()
    assert [(each["from"], each["body"]["code"]) for each in got] == [(R + "/nobody", 404)]
    assert bench.bus.counters["undeliverable.404"] == 2
    assert not bench.out.sent


async def test_r16_the_other_spelling_of_a_runtime(bench: Bench) -> None:
    got = bench.listen(R + "/sm")
    bench.bus.post_message(message("hyperty-runtime://d/1/sm"))
    await turn()
    assert len(got) == 1


async def test_r17_a_runtime_is_no_relay(bench: Bench) -> None:
    bench.bus.receive(message("hyperty://g/y", "read", FAR, id=5), "runtime://f/protostub/1")
    await turn()
    (sent,) = bench.out.sent
    assert (sent["type"], sent["to"], sent["id"], sent["body"]["code"]) == ("response", FAR, 5, 404)


async def test_r18_a_message_beyond_the_limit_is_answered_413() -> None:
    bench = Bench(max_size=1000)
    got: list[Message] = []
    bench.bus.post_message({**message(FAR, "create"), "body": {"value": "x" * 1000}}, got.append)
    bench.bus.post_message({**message(FAR, "create"), "body": {"value": "x" * 800}})
    await turn()
    assert got[0]["body"]["code"] == 413
    assert len(bench.out.sent) == 1


async def test_r19_publishing_is_counted(bench: Bench) -> None:
    address = "comm://d/o/changes"
    bench.listen(address)
    first, second = bench.bus.add_publish(address), bench.bus.add_publish(address)
    first.remove()
    first.remove()
    bench.bus.post_message(message(address))
    await turn()
    assert len(bench.out.sent) == 1
    second.remove()
    bench.bus.post_message(message(address))
    await turn()
    assert len(bench.out.sent) == 1


async def test_r20_what_came_from_outside_is_not_published_again(bench: Bench) -> None:
    address = "comm://d/o/changes"
    got = bench.listen(address)
    bench.bus.add_publish(address)
    bench.bus.receive(message(address, sender=FAR), "runtime://f/protostub/1")
    await turn()
    assert len(got) == 1 and not bench.out.sent


async def test_r38_a_message_without_a_body_passes(bench: Bench) -> None:
    got = bench.listen(B)
    plain = {"type": "read", "from": A, "to": B}
    bench.bus.post_message(plain)
    bench.bus.receive({**plain, "from": FAR, "id": 1}, "runtime://f/protostub/1")
    await turn()
    assert len(got) == 2


async def test_every_message_has_an_id_and_a_given_one_stays(bench: Bench) -> None:
    got = bench.listen(B)
    bench.bus.post_message(message(B))
    bench.bus.post_message(message(B, id=0))
    bench.bus.post_message(message(B, id="mine"))
    bench.bus.post_message(message(B, id=""))
    await turn()
    assert [each["id"] for each in got] == [1, 2, "mine", 3]


async def test_an_error_answer_that_nobody_takes_goes_to_the_error_hook(bench: Bench) -> None:
    bench.bus.post_message(message(R + "/nobody", "create"))
    await turn()
    (fault,) = bench.faults
    assert (
        fault.reason == "answers.unexpected" and "404" in fault.text and R + "/nobody" in fault.text
    )


async def test_an_answer_through_another_stub_is_none(bench: Bench) -> None:
    got: list[Message] = []
    id_ = bench.bus.post_message(message(FAR, "read"), got.append)
    await turn()
    bench.bus.receive(
        answer(A, id_, {"code": 200, "value": "a lie"}, FAR), "runtime://g/protostub/9"
    )
    await turn()
    assert got == []
    bench.bus.receive(answer(A, id_, {"code": 200}, FAR), bench.out.stub)
    await turn()
    assert len(got) == 1


async def test_an_answer_goes_back_the_way_its_request_came(bench: Bench) -> None:
    asked = bench.listen(B)
    bench.bus.receive(message(B, "read", FAR, id=3), "runtime://d/protostub/home")
    await turn()
    bench.bus.post_message(answer(asked[0]["from"], 3, {"code": 200}))
    await turn()
    assert bench.out.stubs == ["runtime://d/protostub/home"]


async def test_a_coroutine_listener_gets_its_messages_in_order(bench: Bench) -> None:
    done: list[int] = []
    ended = asyncio.Event()

    async def slow_then_fast(got: Message) -> None:
        await asyncio.sleep(0.02 if got["id"] == 1 else 0)
        done.append(got["id"])
        if len(done) == 3:
            ended.set()

    bench.bus.add_listener(B, slow_then_fast)
    for _ in range(3):
        bench.bus.post_message(message(B))
    async with asyncio.timeout(10):
        await ended.wait()
    assert done == [1, 2, 3]


async def test_a_listener_that_never_returns_has_a_bounded_queue(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus_module, "MAX_LISTENER_QUEUED", 2)
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


async def test_listeners_that_answer_each_other_for_ever_leave_the_loop_its_turn(
    bench: Bench,
) -> None:
    bench.bus.add_listener(A, lambda _: bench.bus.post_message(message(B)))
    bench.bus.add_listener(B, lambda _: bench.bus.post_message(message(A)))
    bench.bus.post_message(message(A))
    async with asyncio.timeout(10):
        await asyncio.sleep(0.01)
    bench.bus.remove_all_listeners_of(A)
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


async def test_retries_end_with_the_first_other_answer(bench: Bench) -> None:
    codes = iter((500, 408, 200))

    def serve(asked: Message) -> None:
        bench.bus.post_message(answer(asked["from"], asked["id"], {"code": next(codes)}))

    bench.bus.add_listener(B, serve)
    got = await bench.bus.post_message_with_retries(message(B, "subscribe"), 5)
    assert got["body"]["code"] == 200


# --- pipelines ------------------------------------------------------------------------------------


def block(_: Message, context: dict[str, str]) -> Message:
    return {"code": 403, "desc": f"Blocked on the way {context['direction']}."}


async def test_r55_a_block_on_the_way_out_is_answered_with_both_texts(bench: Bench) -> None:
    bench.bus.pipeline_out.use(block)
    got: list[Message] = []
    bench.bus.post_message(message(FAR, "create"), got.append)
    await turn()
    body = got[0]["body"]
    assert body["code"] == 403 and body["desc"] == body["description"] != ""
    assert not bench.out.sent


async def test_r55_a_block_on_the_way_in_is_answered_outside(bench: Bench) -> None:
    bench.bus.pipeline_in.use(block)
    got = bench.listen(B)
    bench.bus.receive(message(B, "create", FAR, id=1), "runtime://f/protostub/1")
    await turn()
    assert not got
    assert [(each["to"], each["body"]["code"]) for each in bench.out.sent] == [(FAR, 403)]


async def test_r56_inside_and_for_answers_and_reads_no_handler_runs(bench: Bench) -> None:
    bench.bus.pipeline_out.use(block)
    bench.bus.pipeline_in.use(block)
    got = bench.listen(B)
    bench.bus.post_message(message(B, "create"))
    bench.bus.post_message(message(FAR, "read"))
    bench.bus.post_message(answer(FAR, 1, {"code": 200}))
    bench.bus.post_message(message(FAR, "delete"))
    bench.bus.post_message(message("domain://msg-node.f/sm", "subscribe", R + "/sm"))
    bench.bus.receive(message(B, "read", FAR, id=1), "runtime://f/protostub/1")
    await turn()
    assert len(got) == 2 and len(bench.out.sent) == 4


@pytest.mark.parametrize(
    ("sender", "runs"),
    [
        ("hyperty://d/p2phandler/1", True),
        ("hyperty://d/x/p2phandler/1", True),
        ("runtime://d/1/chat/p2phandler/1", True),
        ("runtime://d/1/p2phandler/1", False),
        ("runtime://d/p2prequester/1", False),
    ],
)
async def test_r57_only_p2p_signalling_passes_no_handler(
    bench: Bench, sender: str, runs: bool
) -> None:
    seen: list[Message] = []
    bench.bus.pipeline_out.use(lambda each, _: seen.append(each))
    bench.bus.post_message(message(FAR, "create", sender))
    await turn()
    assert bool(seen) is runs and len(bench.out.sent) == 1


async def test_order_holds_while_a_handler_is_awaited(bench: Bench) -> None:
    identified = asyncio.Event()

    async def identify(each: Message, _: dict[str, str]) -> Message:
        if each["body"]["value"] == 1:
            await identified.wait()
        return {**each, "body": {**each["body"], "identity": {}}}

    bench.bus.pipeline_out.use(identify)
    for value in (1, 2, 3):
        bench.bus.post_message({**message(FAR), "body": {"value": value}})
    bench.bus.post_message(message(FAR, "read"))
    bench.bus.post_message({**message("hyperty://f/other"), "body": {"value": 4}})
    await turn()
    assert [each["body"]["value"] for each in bench.out.sent] == [4]
    identified.set()
    await until(lambda: len(bench.out.sent) == 5)
    values = [each["body"]["value"] for each in bench.out.sent]
    assert values == [4, 1, 2, 3, [1]]
    assert "identity" in bench.out.sent[1]["body"]


async def test_a_handler_that_breaks_lets_nothing_through(bench: Bench) -> None:
    bench.bus.pipeline_out.use(lambda each, _: {}[each["type"]])
    got: list[Message] = []
    bench.bus.post_message(message(FAR, "create"), got.append)
    await turn()
    assert got[0]["body"]["code"] == 500 and not bench.out.sent
    assert any("KeyError" in fault.text for fault in bench.faults)
