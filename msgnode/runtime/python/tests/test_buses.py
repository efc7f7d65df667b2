"""The rules of both buses; the numbers are those of the conformance cases of a runtime."""

from __future__ import annotations

import asyncio

import pytest
from bus_harness import FAR, A, B, Bench, R, message, turn

from msgnode.runtime.python import listeners
from msgnode.runtime.python.listeners import Listening
from msgnode.runtime.python.message_bus import MessageBus
from msgnode.runtime.python.messages import BadMessage, Message
from msgnode.runtime.python.minibus import MiniBus


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
    for _ in range(30):
        bench.bus.post_message(message(R + "/nobody/" + "x" * 400, "read"))
    await turn()
    assert [len(each["text"]) for each in bench.bus.errors] == [300] * 20  # for who debugs


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
    first = got[0]["id"]  # which differs from one bus to the next
    assert [each["id"] for each in got] == [first, first + 1, "mine", first + 2]


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


class Beyond:
    """The way outside of a bus that ends at another bus, and what has taken it."""

    def __init__(self, runtime: str, stub: str) -> None:
        self.bus = MessageBus(runtime, self)
        self.other: Beyond | None = None
        self.stub = stub
        self.sent: list[Message] = []

    def send(self, message: Message, size: int, stub: str) -> str:
        self.sent.append(message)
        assert self.other
        assert len(self.sent) < 20, "it goes round"
        self.other.bus.receive(message, self.other.stub)
        return self.stub


def two_that_forward() -> tuple[Beyond, Beyond]:
    """Runtimes of d and f, each of which reaches everything through the other."""
    d = Beyond(R, "runtime://f/protostub/1")
    f = Beyond("runtime://f/1", "runtime://d/protostub/1")
    d.other, f.other = f, d
    return d, f


async def test_r73_what_two_runtimes_both_publish_is_delivered_once_in_each() -> None:
    d, f = two_that_forward()
    address = "comm://d/o/changes"
    got: dict[str, list[Message]] = {"d": [], "f": []}
    for name, each in (("d", d), ("f", f)):
        each.bus.add_listener(address, got[name].append)
        each.bus.add_publish(address)
    d.bus.post_message(message(address))
    f.bus.post_message(message(address, sender=FAR))
    await turn()
    for name, other, stub in (("d", FAR, d.stub), ("f", A, f.stub)):
        assert len(got[name]) == 2
        (came,) = [each for each in got[name] if each["from"] == other]
        assert came["body"]["via"] == stub
    assert len(d.sent) == len(f.sent) == 1


async def test_r73_what_neither_of_two_runtimes_has_is_404_after_one_crossing() -> None:
    d, f = two_that_forward()
    got: list[Message] = []
    d.bus.post_message(message("hyperty://g/y", "create"), got.append)
    await turn()
    await turn()
    assert [each["body"]["code"] for each in got] == [404]
    assert [each["type"] for each in d.sent] == ["create"]
    assert [each["type"] for each in f.sent] == ["response"]
