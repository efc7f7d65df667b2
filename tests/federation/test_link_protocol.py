"""The protocol of links between nodes: batches, numbers, window and credit, hellos. Pure."""

from __future__ import annotations

import itertools
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.federation import link_protocol as protocol
from msgnode.federation.link_protocol import (
    BAD_FRAME,
    BAD_NAME,
    BAD_PROOF,
    BAD_VERSION,
    CREDIT,
    MAX_BYTES,
    MAX_ITEMS,
    TOO_LARGE,
    WINDOW,
    Hello,
    Inbox,
    LinkFault,
    Outbox,
)  # fmt: skip

A, B = "a.example", "b.example"


def item(number: int, size: int = 0) -> bytes:
    return b'{"id":%d,"x":"%b"}' % (number, b"x" * size)


def taken(inbox: Inbox, text: bytes) -> list[bytes]:
    """What a node carries of a frame, which it acknowledges."""
    batch = protocol.read(text).send
    assert batch is not None
    items = [bytes(each) for each in inbox.take(text, batch)]
    inbox.carried = inbox.received
    return items


def sealed(outbox: Outbox, ack: int = 0) -> bytes:
    text = outbox.seal(ack)
    assert text is not None
    return text


def refused(code: int, inbox: Inbox, text: bytes) -> None:
    """A frame of which nothing is carried."""
    before = inbox.received
    with pytest.raises(LinkFault) as fault:
        taken(inbox, text)
    assert fault.value.code == code, fault.value
    assert inbox.received == before


def test_what_is_collected_leaves_together_and_as_it_came() -> None:
    outbox, inbox = Outbox(), Inbox()
    messages = [b'{ "id" : 1 }', '{"id":2,"body":{"ö":"\\u00f6"}}'.encode(), b'{"id":3}']
    for each in messages:
        outbox.add(each)
    assert taken(inbox, sealed(outbox)) == messages
    assert outbox.seal(0) is None


@pytest.mark.parametrize(("size", "most"), [(0, MAX_ITEMS), (3_000, MAX_BYTES // 3_017)])
def test_a_batch_has_a_most_of_messages_and_of_bytes(size: int, most: int) -> None:
    outbox = Outbox()
    for number in range(MAX_ITEMS + 1):
        outbox.add(item(100 + number, size))
    assert not outbox.has_room
    batch = protocol.read(sealed(outbox)).send
    assert batch is not None
    assert len(batch.items) == most


def test_a_message_larger_than_a_batch_leaves_alone() -> None:
    outbox, inbox = Outbox(), Inbox()
    large = item(1, CREDIT + 1)
    for each in (large, item(2)):
        outbox.add(each)
    assert taken(inbox, sealed(outbox)) == [large]
    assert outbox.seal(0) is None  # it is more than the credit
    outbox.acknowledged(1)
    assert taken(inbox, sealed(outbox)) == [item(2)]


def test_case_l63_a_node_that_acknowledges_nothing_is_sent_a_window_and_no_more() -> None:
    outbox = Outbox()
    for number in range(WINDOW + 1):
        outbox.add(item(number))
        text = outbox.seal(0)
        assert (text is None) == (number == WINDOW)
    assert outbox.unacknowledged[0] == WINDOW
    outbox.acknowledged(1)
    assert outbox.seal(0) is not None


def test_case_l63_it_is_sent_no_more_bytes_than_its_credit() -> None:
    outbox = Outbox()
    while True:
        outbox.add(item(1, CREDIT // 4))
        if outbox.seal(0) is None:
            break
    assert CREDIT // 2 < outbox.unacknowledged[1] <= CREDIT


def test_case_68_without_credit_nothing_is_sent_and_with_it_all_goes_on() -> None:
    outbox = Outbox()
    outbox.add(item(1))
    sealed(outbox)
    outbox.acknowledged(1, 0)
    outbox.add(item(2))
    assert outbox.seal(0) is None
    outbox.acknowledged(1, CREDIT)
    assert outbox.seal(0) is not None


def test_case_66_what_was_not_acknowledged_is_sent_again_and_carried_once() -> None:
    outbox, inbox = Outbox(), Inbox()
    texts = []
    for number in range(3):
        outbox.add(item(number))
        texts.append(sealed(outbox))
    assert taken(inbox, texts[0]) == [item(0)]
    assert outbox.again(inbox.received) == texts[1:]
    assert [taken(inbox, each) for each in texts[1:]] == [[item(1)], [item(2)]]
    assert taken(inbox, texts[2]) == []
    assert inbox.repeated == 1


def test_case_l67_the_same_number_with_other_content_ends_the_link() -> None:
    inbox = Inbox()
    first, other = Outbox(), Outbox()
    first.add(item(1))
    other.add(item(2))
    taken(inbox, sealed(first))
    refused(BAD_FRAME, inbox, sealed(other))


def test_case_l68_a_number_that_is_not_the_next_ends_the_link() -> None:
    outbox = Outbox()
    outbox.add(item(1))
    sealed(outbox)
    outbox.add(item(2))
    refused(BAD_FRAME, Inbox(), sealed(outbox))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b'{"send":{"seq":1,"ack":0,"items":[%b]}}' % b",".join([item(1)] * 101), TOO_LARGE),
        (b'{"send":{"seq":1,"ack":0,"items":[]}}', TOO_LARGE),
        (b'{"send":{"seq":1,"ack":0,"items":[{}],"seq":1}}', BAD_FRAME),
        (b'{"send":{"seq":2,"seq":1,"ack":0,"items":[{}]}}', BAD_FRAME),
        (b'{"send":{"seq":1,"ack":0,"items":[{}, {}]}}', BAD_FRAME),
        (b'{"send":{"seq":1,"ack":0,"items":[%b]}}' % (b"[" * 100_000 + b"]" * 100_000), BAD_FRAME),
        (b'{"send":{"seq":1,"ack":0,"items":[{}]}', BAD_FRAME),
        (b'{"send":{"seq":"1","ack":0,"items":[{}]}}', BAD_FRAME),
        (b"[]", BAD_FRAME),
        (b"\xff", BAD_FRAME),
    ],
)  # fmt: skip
def test_case_l72_a_batch_that_is_not_as_it_should_be_ends_the_link(text: bytes, code: int) -> None:
    refused(code, Inbox(), text)


def test_case_l72_who_sends_more_than_may_be_unacknowledged_is_ended() -> None:
    inbox, outbox = Inbox(), Outbox()
    for number in range(WINDOW + 1):
        outbox.add(item(number))
        text = sealed(outbox)
        outbox.acknowledged(number + 1)
        batch = protocol.read(text).send
        assert batch is not None
        if number < WINDOW:
            inbox.take(text, batch)
        else:
            with pytest.raises(LinkFault):
                inbox.take(text, batch)


@pytest.mark.parametrize("received", [-1, 2, 9])
def test_what_was_never_sent_is_not_acknowledged_nor_what_was_forgotten(
    received: int,
) -> None:
    outbox = Outbox()
    for number in range(2):
        outbox.add(item(number))
        sealed(outbox)
    outbox.acknowledged(1)
    if received == 2:
        assert outbox.again(received) == []
    else:
        with pytest.raises(LinkFault):
            outbox.again(received)


@given(st.binary() | st.builds(msgspec.json.encode, st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["send", "seq", "ack", "items", "hello", "proof", "ready", "gap"]), inner),
)))  # fmt: skip
def test_no_frame_does_more_than_end_the_link(text: bytes) -> None:
    inbox, outbox = Inbox(), Outbox()
    with suppress(LinkFault):
        frame = protocol.read(text)
        if frame.send is not None:
            inbox.take(text, frame.send)
            outbox.acknowledged(frame.send.ack)
        if frame.ack is not None:
            outbox.acknowledged(frame.ack.seq, frame.ack.credit)
        protocol.read_hello(bytes(frame.hello), A, 0.0)


@given(st.lists(st.sampled_from(["add", "seal", "arrive", "ack", "cut"]), max_size=200))
def test_case_l61_whatever_is_cut_all_arrives_in_order_and_once(steps: list[str]) -> None:
    """A socket delivers in order, and loses what is under way when it is cut."""
    outbox, inbox = Outbox(), Inbox()
    numbers = itertools.count()
    added: list[bytes] = []
    there: list[bytes] = []
    wire: list[bytes] = []
    acks: list[int] = []
    for step in [*steps, "cut", *["seal", "arrive", "ack"] * 100]:
        if step == "add":
            added.append(item(next(numbers)))
            outbox.add(added[-1])
        elif step == "seal" and (text := outbox.seal(0)) is not None:
            wire.append(text)
        elif step == "arrive" and wire:
            there += taken(inbox, wire.pop(0))
            acks.append(inbox.carried)
        elif step == "ack" and acks:
            outbox.acknowledged(acks.pop(0))
        elif step == "cut":
            acks.clear()
            wire[:] = outbox.again(inbox.received)
    assert there == added
    assert outbox.is_idle


def hello(**other: object) -> bytes:
    said = {"from": A, "to": B, "nonce": "n", "kid": "k", "time": 1000.0, "life": "1"}
    return msgspec.json.encode({**said, "versions": [1], **other})


@pytest.mark.parametrize(
    ("other", "code", "words"),
    [
        ({"to": "c.example"}, BAD_NAME, "this is b.example"),
        ({"from": B}, BAD_NAME, "this is b.example"),
        ({"versions": [2, 3]}, BAD_VERSION, "a.example has (2, 3)"),
        ({"time": 699.0}, BAD_PROOF, "the clocks differ"),
        ({"time": 1301.0}, BAD_PROOF, "the clocks differ"),
        ({"nonce": ""}, BAD_FRAME, "nonce"),
        ({"life": "x" * 101}, BAD_FRAME, "life"),
        ({"time": "now"}, BAD_FRAME, "hello"),
    ],
)
def test_case_64_a_hello_that_is_not_for_this_node_or_time_or_version_is_named(
    other: dict[str, object], code: int, words: str
) -> None:
    with pytest.raises(LinkFault, match=r"\w") as fault:
        protocol.read_hello(hello(**other), B, 1000.0)
    assert fault.value.code == code
    assert words in str(fault.value)


@pytest.mark.parametrize("time", [700.0, 1300.0])
def test_case_64_a_clock_may_differ_by_five_minutes(time: float) -> None:
    read = protocol.read_hello(hello(time=time), B, 1000.0)
    assert isinstance(read, Hello)
    assert read.sender == A
