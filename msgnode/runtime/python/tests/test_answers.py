"""Cases R5 to R9 and R13: who gets which answer, and when nobody answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from bus_harness import FAR, A, B, Bench, R, answer, message, turn, until

from msgnode.runtime.python import answers
from msgnode.runtime.python.messages import Message


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
    monkeypatch.setattr(answers, "MAX_RENEWALS", 1)
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


async def test_r13_who_leaves_the_bus_gets_503_for_what_he_waits_for(bench: Bench) -> None:
    bench.listen(B)
    got: list[Message] = []
    bench.bus.post_message(message(B, "read"), got.append)
    await turn()
    bench.bus.remove_all_listeners_of(A)
    assert got[0]["body"]["code"] == 503


async def test_a_bus_that_closes_ends_every_wait(bench: Bench) -> None:
    bench.listen(B)
    codes: list[int] = []

    def take(each: Message) -> None:
        codes.append(each["body"]["code"])

    bench.bus.post_message(message(B, "read"), take)
    bench.bus.add_response_listener(A, 7, take)
    asking = asyncio.create_task(bench.bus.request(message(B, "read")))
    await turn()
    await bench.bus.close()
    assert codes == [503, 503]
    assert (await asking)["body"]["code"] == 503


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "200.5"])
async def test_a_code_that_is_no_number_stops_no_bus(bench: Bench, number: str) -> None:
    body = json.loads(f'{{"code": {number}}}')
    bench.bus.post_message(answer(f"{R}/nobody", 1, body))
    await turn()
    heard = bench.listen(B)
    bench.bus.post_message(message(B))
    await turn()
    assert len(heard) == 1
    assert [fault.reason for fault in bench.faults] == ["answers.unexpected"]


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


@pytest.mark.parametrize(("sender", "taken"), [(FAR, 1), ("hyperty://f/other", 0)])
async def test_an_answer_may_come_through_the_home_stub_from_who_was_asked(
    bench: Bench, sender: str, taken: int
) -> None:
    bench.bus.home_stub = "runtime://d/protostub/home"
    got: list[Message] = []
    id_ = bench.bus.post_message(message(FAR, "read"), got.append)
    await turn()
    bench.bus.receive(answer(A, id_, {"code": 200}, sender), "runtime://d/protostub/home")
    await turn()
    assert len(got) == taken


async def test_an_answer_goes_back_the_way_its_request_came(bench: Bench) -> None:
    asked = bench.listen(B)
    bench.bus.receive(message(B, "read", FAR, id=3), "runtime://d/protostub/home")
    await turn()
    bench.bus.post_message(answer(asked[0]["from"], 3, {"code": 200}))
    await turn()
    assert bench.out.stubs == ["runtime://d/protostub/home"]


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


async def test_a_final_answer_goes_the_way_of_the_provisional_one_before_it(bench: Bench) -> None:
    bench.listen(B)
    bench.bus.receive(message(B, "read", FAR, id=3), "runtime://d/protostub/home")
    await turn()
    for code in (100, 200, 200):
        bench.bus.post_message(answer(FAR, 3, {"code": code}))
    await turn()
    home = "runtime://d/protostub/home"
    assert bench.out.stubs == [home, home, ""]  # the third was not asked for
