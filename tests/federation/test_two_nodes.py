"""Two real nodes: what one's runtimes send to the other's goes through the other's own stub."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests import waiting
from tests.client import code
from tests.runtime.started import process
from tests.runtime.talkers import Process

from .nodes import A, B, TwoNodes, answer_requests, come, subscribe
from .sandboxes import needs_deno

pytestmark = [
    needs_deno,
    pytest.mark.asyncio,
    pytest.mark.long,
    pytest.mark.usefixtures("sessions_end"),
]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[TwoNodes]:
    two = TwoNodes(tmp_path_factory.mktemp("peers"), template, SANDBOX_SILENCE_SECONDS=8)
    with two.running():
        yield two


async def test_case_1_a_request_reaches_the_other_domain_and_its_response_returns(
    nodes: TwoNodes,
) -> None:
    asker = await come(nodes.a, A, "asker")
    answerer = await come(nodes.b, B, "answerer")
    to = f"hyperty://{B}/one"
    assert code(await subscribe(answerer, B, to)) == 200
    for id_ in (7, "seven"):
        await asker.send("read", to, {"value": 1, "auth": True}, id=id_, sender=f"hyperty://{A}/x")
        request = await answerer.expect(type="read", sender=f"hyperty://{A}/x")
        assert request["to"] == to
        assert request["body"]["auth"] is False
        body = {"code": 200, "value": "here"}
        await answerer.send("response", f"hyperty://{A}/x", body, id=request["id"], sender=to)
        answer = await asker.answer(id_)
        assert answer["from"] == to
        assert answer["body"]["value"] == "here"
        assert "via" not in answer["body"]


async def test_a_request_of_the_other_domain_is_answered_too(nodes: TwoNodes) -> None:
    """B reaches what has spoken to it: its node knows then where it is."""
    first = await come(nodes.a, A, "spoken")
    other = await come(nodes.b, B, "other")
    ours, theirs = f"hyperty://{A}/spoken", f"hyperty://{B}/other"
    assert code(await subscribe(first, A, ours)) == 200
    assert code(await subscribe(other, B, theirs)) == 200
    await first.send("execute", theirs, {"value": "hello"}, sender=ours)
    await other.expect(type="execute", sender=ours)
    await other.send("read", ours, id="back", sender=theirs)
    request = await first.expect(type="read", sender=theirs)
    await first.send("response", theirs, {"code": 200, "value": 5}, id=request["id"], sender=ours)
    assert (await other.answer("back"))["body"]["value"] == 5


def gone(asker: Process, address: str) -> None:
    """What is asked of who has left is answered 404, once his node has heard the good-bye."""

    def is_gone() -> bool:
        [answer] = asker.ask(address, 1)["codes"]
        assert answer in (404, 408, 503), answer
        return bool(answer == 404)

    waiting.until(is_gone, 60, lambda: f"{address} is still there")


@pytest.mark.parametrize("kind", ["nodejs", "python"])
async def test_r72_a_device_that_cannot_run_the_others_stub_is_bridged_by_its_node(
    nodes: TwoNodes, kind: str
) -> None:
    """Both ways, and either hears when the other has left; no code of b comes to the device."""
    at_a, at_b = (f"http://127.0.0.1:{node.port}" for node in (nodes.a, nodes.b))
    nowhere = "http://127.0.0.1:1"
    device = {"domain": A, "catalogues": {A: at_a, B: nowhere}, "routing": {B: "stub-else-node"}}
    other = {"domain": B, "catalogues": {A: at_a, B: at_b}, "sandbox": "own"}

    def talk() -> None:
        with process("talker", kind, device) as away, process("talker", "python", other) as home:
            here, there = Process(away), Process(home)
            assert here.ask(there.url, 20)["codes"] == [200] * 20
            assert there.ask(here.url, 20)["codes"] == [200] * 20
            there.end()
            gone(here, there.url)
            with process("talker", "python", other) as again:
                back = Process(again)
                assert here.ask(back.url, 1)["codes"] == [200]
                here.end()
                gone(back, here.url)

    await asyncio.to_thread(talk)


async def test_case_37_an_error_of_the_other_domain_comes_unchanged(nodes: TwoNodes) -> None:
    asker = await come(nodes.a, A, "lost")
    answer = await asker.ask("read", f"hyperty://{B}/nobody")
    assert code(answer) == 404
    assert answer["from"] == f"hyperty://{B}/nobody"


async def test_case_42_a_token_that_is_not_for_the_other_domain_stays_here(
    nodes: TwoNodes,
) -> None:
    asker, other = await come(nodes.a, A, "tokens"), await come(nodes.b, B, "tokens")
    to = f"hyperty://{B}/tokens"
    assert code(await subscribe(other, B, to)) == 200
    await asker.send("execute", to, {"accessToken": "secret", "value": 1})
    assert "accessToken" not in (await other.expect(type="execute", to=to))["body"]


async def test_case_52_what_one_says_to_another_comes_in_order(nodes: TwoNodes) -> None:
    asker, other = await come(nodes.a, A, "order"), await come(nodes.b, B, "order")
    to = f"hyperty://{B}/order"
    assert code(await subscribe(other, B, to)) == 200
    for number in range(1_000):
        await asker.send("execute", to, {"value": number})
    for number in range(1_000):
        assert (await other.expect(type="execute", to=to))["body"]["value"] == number


async def test_case_77_nobody_here_speaks_as_the_other_domain(nodes: TwoNodes) -> None:
    poser = await come(nodes.a, B, "poser")
    answer = await poser.ask("read", f"hyperty://{A}/x", sender=f"hyperty://{B}/bob")
    assert code(answer) == 403


async def test_case_33_a_sandbox_that_ends_answers_what_was_pending_and_comes_back(
    nodes: TwoNodes,
) -> None:
    asker = await come(nodes.a, A, "pending")
    silent = await come(nodes.b, B, "silent")
    to = f"hyperty://{B}/silent"
    assert code(await subscribe(silent, B, to)) == 200
    await asyncio.to_thread(nodes.wait_live)
    ids = [await asker.send("read", to, {"value": number}) for number in range(50)]
    for _ in ids:
        await silent.expect(type="read", to=to)
    nodes.signal_sandboxes(signal.SIGKILL)
    for id_ in ids:
        answer = await asker.answer(id_)
        assert code(answer) == 503
        assert B in answer["body"]["description"]
    answering = asyncio.create_task(answer_requests(silent))
    asking = partial(asker.ask, "read", to, {"value": "again"})
    await waiting.seen(asking, lambda answer: code(answer) == 200, 60)
    answering.cancel()


async def test_case_14_a_peer_that_is_blocked_gets_nothing_and_its_stub_ends(
    nodes: TwoNodes,
) -> None:
    asker = await come(nodes.a, A, "blocked")
    await asyncio.to_thread(nodes.a.manage, "peers", "block", B)
    try:
        await asyncio.to_thread(nodes.wait, lambda peer: peer["state"] == "stopped")
        answer = await asker.ask("read", f"hyperty://{B}/one")
        assert code(answer) == 403
        await asyncio.to_thread(waiting.until, lambda: not nodes.sandboxes(), 30)
    finally:
        await asyncio.to_thread(nodes.a.manage, "peers", "resume", B)
        await asyncio.to_thread(nodes.wait_live)
