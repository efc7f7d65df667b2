"""A frame for one listener or several: who gets which copy, how many at once, what became of it.

A session's token is in no copy of a frame, however it is written; the rest of the copy stays.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.bus.delivery import FanOut, hand_over, without_token
from msgnode.bus.ports import DeliveryResult, Response
from msgnode.bus.return_paths import ReturnPath
from msgnode.bus.table import RoutingTable
from msgnode.core.faults import FAULTS
from msgnode.core.record import Outcome
from tests.fakes import FakeCaller, FakeSession
from tests.stage.bus import ONE, TOKEN, TWO, Caller, Ear

TOKEN_BYTES = TOKEN.encode()
SAID = b'{"from":"%b/%b"}' % (ONE.encode(), TOKEN_BYTES)
PUBLIC = b'{"from":"%b"}' % ONE.encode()
PATH = ReturnPath(ONE, "1", "s", ONE)
RESPONSE = Response(ONE, "1", "s")


@pytest.mark.parametrize(
    ("taken", "outcome"),
    [
        (DeliveryResult.WRITTEN, (Outcome.DELIVERED, 1)),
        (DeliveryResult.BEHIND, (Outcome.DELIVERED, 1)),
        (DeliveryResult.QUEUED, (Outcome.QUEUED, 1)),
        (DeliveryResult.DROPPED, (Outcome.DROPPED, 0)),
    ],
)
def test_what_the_listener_says_is_the_outcome_and_only_one_behind_is_waited_for(
    taken: DeliveryResult, outcome: tuple[Outcome, int]
) -> None:
    sender, listener = FakeSession(ONE), FakeSession(TWO)
    listener.taken = taken
    caller = Caller(sender)
    assert hand_over(PUBLIC, (listener,), sender, caller) == outcome
    assert caller.waited_for == ([TWO] if taken is DeliveryResult.BEHIND else [])


def test_only_the_sender_himself_is_given_his_token() -> None:
    sender, listener = FakeSession(ONE, TOKEN), FakeSession(TWO)
    hand_over(SAID, (listener,), sender, FakeCaller(sender))
    hand_over(SAID, (sender,), sender, FakeCaller(sender))
    assert (listener.frames, sender.frames) == ([PUBLIC], [SAID])


@pytest.mark.parametrize("beside", [None, PATH, RESPONSE])
def test_the_sender_alone_is_given_his_token_among_several(beside: Any) -> None:
    sender, one, two = (Ear(ONE), Ear(TWO), Ear(TWO))
    sender.token = TOKEN_BYTES
    listeners = (one, sender, two)
    outcome = hand_over(SAID, listeners, sender, FakeCaller(sender), beside)
    assert outcome == (Outcome.DELIVERED, 3)
    assert [each.frames for each in listeners] == [[PUBLIC], [SAID], [PUBLIC]]
    assert [each.beside for each in listeners] == [[beside] if beside else []] * 3


@pytest.mark.parametrize("beside", [None, PATH, RESPONSE])
def test_one_listener_is_given_the_frame_and_what_goes_beside_it(beside: Any) -> None:
    sender, ear = FakeSession(ONE, TOKEN), Ear(TWO)
    assert hand_over(SAID, (ear,), sender, FakeCaller(sender), beside) == (Outcome.DELIVERED, 1)
    assert (ear.frames, ear.beside) == ([PUBLIC], [beside] if beside else [])


def test_a_backslash_alone_makes_the_frame_be_looked_through() -> None:
    sender, ear = FakeSession(ONE, TOKEN), Ear(TWO)
    escaped = SAID.replace(TOKEN_BYTES, b"\\u0030" + TOKEN_BYTES[1:])
    hand_over(escaped, (ear,), sender, FakeCaller(sender))
    assert ear.frames == [PUBLIC]


class Broken(FakeSession):
    """Cannot be handed anything, nor told that it has missed something."""

    def deliver(self, frame: bytes) -> DeliveryResult:
        raise RuntimeError("it is broken")

    def missed(self) -> None:
        raise RuntimeError("and stays so")


@pytest.mark.parametrize("number", [1, 3])
def test_a_listener_that_breaks_twice_is_counted_and_harms_nobody(number: int) -> None:
    before, sender = FAULTS.counts["listener"], FakeSession(ONE)
    listeners = (Broken(TWO), *(FakeSession(TWO) for _ in range(number - 1)))
    outcome = hand_over(b"{}", listeners, sender, FakeCaller(sender))
    assert outcome == ((Outcome.DROPPED, 0) if number == 1 else (Outcome.DELIVERED, 2))
    assert FAULTS.counts["listener"] == before + 2


@pytest.mark.parametrize("number", [1, 2])
def test_the_log_says_why_a_listener_failed(
    number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(FAULTS, "_logged_at", {})
    sender = FakeSession(ONE)
    listeners = (Broken(TWO), FakeSession(TWO))[:number]
    hand_over(PUBLIC, listeners, sender, FakeCaller(sender))
    assert caplog.records[0].getMessage() == "A failure was kept to one listener."
    assert caplog.records[0].exc_info is not None
    assert str(caplog.records[0].exc_info[1]) == "it is broken"


@pytest.mark.parametrize(
    ("taken", "outcome"),
    [
        ("wwq", (Outcome.DELIVERED, 3)),
        ("wqd", (Outcome.DELIVERED, 2)),
        ("qqd", (Outcome.QUEUED, 2)),
        ("qqqd", (Outcome.QUEUED, 3)),
        ("qwqq", (Outcome.DELIVERED, 4)),
        ("bd", (Outcome.DELIVERED, 1)),
        ("ddd", (Outcome.DROPPED, 0)),
    ],
)
def test_the_best_outcome_among_the_listeners_is_told_with_how_many_accepted(
    taken: str, outcome: tuple[Outcome, int]
) -> None:
    results = {
        "w": DeliveryResult.WRITTEN, "q": DeliveryResult.QUEUED,
        "d": DeliveryResult.DROPPED, "b": DeliveryResult.BEHIND,
    }  # fmt: skip
    listeners = tuple(FakeSession(TWO) for _ in taken)
    for listener, letter in zip(listeners, taken, strict=True):
        listener.taken = results[letter]
    assert hand_over(b"{}", listeners, FakeSession(ONE), FakeCaller()) == outcome


@pytest.mark.parametrize(
    ("number", "size", "is_large", "turns"),
    [
        (256, 100, False, 1),
        (257, 100, True, 2),
        (600, 100, True, 3),
        (10, 100_000, False, 5),  # a quarter of a megabyte at a time
        (11, 100_000, True, 6),
        (3, 2_000_000, True, 3),
        (8, 60_000, False, 2),
        (9, 52_429, False, 3),  # 4 * 52,429 bytes are more than a fifth of a megabyte
    ],
)
def test_a_large_fan_out_gives_way_in_between(
    number: int, size: int, is_large: bool, turns: int
) -> None:
    listeners = tuple(FakeSession(TWO) for _ in range(number))
    fan_out = FanOut(b"x" * size, listeners, FakeSession(ONE))
    assert fan_out.is_large is is_large
    assert sum(1 for _ in fan_out.parts()) == turns
    assert all(len(each.frames) == 1 for each in listeners)
    assert fan_out.outcome == (Outcome.DELIVERED, number)


def test_a_session_that_changes_its_worker_meanwhile_is_delivered_to_where_it_is() -> None:
    table = RoutingTable()
    listeners = tuple(FakeSession(f"{TWO}/{number}") for number in range(300))
    there, here_again = FakeSession(listeners[-1].runtime_url), FakeSession(TWO)
    fan_out = FanOut(b"x", listeners, FakeSession(ONE))
    parts = fan_out.parts()
    next(parts)
    table.replace(listeners[-1], there, (), ())
    table.replace(listeners[-2], there, (), ())
    table.replace(there, here_again, (), ())
    assert sum(1 for _ in parts) == 1
    assert len(here_again.frames) == 2
    assert not any(each.frames for each in (*listeners[-2:], there))
    assert fan_out.outcome == (Outcome.DELIVERED, 300)


TEXT = st.text(max_size=20)
TOKEN = "0f8fad5b-d9cb-469f-a165-70867728950e"


def escaped(char: str) -> str:
    return f"\\u{ord(char):04x}"


SPELLINGS = (
    st.tuples(
        *(
            st.sampled_from([char, char.upper(), escaped(char), escaped(char.upper())])
            for char in TOKEN
        )
    )
    .map("".join)
    .filter(lambda text: "\\" in text)
)
BEFORE = ["", "/", "\\/", escaped("/"), "%2F", "\\n", "\\\\", "\\\\/", "\\\\\\/", "\\\\u003"]


@given(TEXT, SPELLINGS | st.just(TOKEN), st.sampled_from(BEFORE))
def test_a_token_is_cut_out_however_it_is_written(text: str, token: str, before: str) -> None:
    around = json.dumps(text)
    frame = f'{{"a":{around},"via":"runtime://d/1{before}{token}","b":{around}}}'
    copy = json.loads(without_token(frame.encode(), TOKEN.encode()))
    assert TOKEN not in copy["via"].lower()
    assert copy["via"].startswith("runtime://d/1")
    assert (copy["a"], copy["b"]) == (text, text)


@given(st.lists(TEXT), st.booleans())
def test_a_frame_without_the_token_is_handed_on_as_it_is(texts: list[str], ascii_: bool) -> None:
    other = str(uuid.uuid4())
    frame = json.dumps([*texts, other, other.upper()], ensure_ascii=ascii_).encode()
    assert without_token(frame, TOKEN.encode()) is frame


@pytest.mark.parametrize("token", ["abcdef", "ABC", "\xdf-1", "a.b"])
def test_a_token_of_another_form_is_cut_out_too(token: str) -> None:
    frame = json.dumps([f"x/{token}", token.lower()], ensure_ascii=False).encode()
    assert without_token(frame, token.encode()) == b'["x", ""]'
