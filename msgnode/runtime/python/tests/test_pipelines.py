"""Cases R55 to R57: what passes the handlers of a pipeline, and what they do to it."""

from __future__ import annotations

import asyncio

import pytest
from bus_harness import FAR, B, Bench, R, answer, message, turn, until

from msgnode.runtime.python.messages import Message


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
