"""A link: whatever the layer loses, doubles or disorders, words arrive once and in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from msgnode.workers import protocol
from msgnode.workers.protocol import Frame, SessionDown
from msgnode.workers.window import BATCH_BYTES, ReceiveWindow, SendWindow

LIMIT = 1024 * 1024


def outgoing(limit: int = LIMIT) -> SendWindow:
    out = SendWindow(limit, lambda: None)
    out.begin()
    return out


def said(batch: bytes) -> list[str]:
    return [
        message.session for message in protocol.decode(batch) if isinstance(message, SessionDown)
    ]


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=20),
    st.lists(st.sampled_from(["pass", "lose", "double", "late"]), max_size=40),
)
def test_what_the_layer_does_to_batches_is_made_good(sizes: list[int], fates: list[str]) -> None:
    out, incoming = outgoing(), ReceiveWindow()
    expected: list[str] = []
    arrived: list[str] = []
    late: list[tuple[int, bytes]] = []
    fate = iter(fates)

    def arrive(number: int, batch: bytes) -> None:
        if incoming.takes(out.stream, number):
            arrived.extend(said(batch))

    for size in sizes:
        for _ in range(size):
            expected.append(str(len(expected)))
            out.put(SessionDown(expected[-1]))
        while (batch := out.take()) is not None:
            match next(fate, "pass"):
                case "lose":
                    continue
                case "late":
                    late.append((batch.number, batch.words))
                    continue
                case "double":
                    arrive(batch.number, batch.words)
            arrive(batch.number, batch.words)
        for each in late:
            arrive(*each)
    incoming.hears_of(out.stream, out.published)  # by the next beat
    if incoming.is_missing:
        assert out.rewind(incoming.next)
        while (batch := out.take()) is not None:
            arrive(batch.number, batch.words)
    assert arrived == expected
    assert not incoming.is_missing
    out.acknowledge(incoming.next)
    assert out.bytes == 0


def test_a_loss_is_counted_once_however_often_it_is_noticed() -> None:
    incoming = ReceiveWindow()
    assert incoming.takes(1, 0)
    assert not incoming.takes(1, 3)
    assert not incoming.takes(1, 4)
    assert not incoming.hears_of(1, 5)
    assert incoming.hears_of(1, 7)
    assert (incoming.gaps, incoming.missed) == (1, 6)
    for number in range(1, 7):
        assert incoming.takes(1, number)
    assert not incoming.is_missing


def test_a_frame_for_many_sessions_is_sent_once() -> None:
    out = outgoing()
    frame = b"x" * 1000
    for number in range(50):
        assert out.put_frame(str(number), frame)
    batch = out.take()
    assert batch is not None
    (message,) = protocol.decode(batch.words)
    assert isinstance(message, Frame)
    assert len(message.sessions) == 50
    assert batch.sessions == frozenset(map(str, range(50)))
    assert len(batch.words) < 2000


def test_memory_is_bounded_and_the_room_comes_back_with_the_acknowledgement() -> None:
    out = outgoing()
    relieved: list[str] = []
    number = 0
    while out.put_frame("s", b"%d" % number * 2000):
        number += 1
    assert out.is_behind
    assert out.bytes <= LIMIT + 10_000
    out.when_writable(lambda: relieved.append("now"))
    while (batch := out.take()) is not None:
        assert len(batch.words) < BATCH_BYTES + 20_000
    assert not relieved
    out.acknowledge(out.published)
    assert relieved == ["now"]
    assert out.bytes == 0
    assert out.put_frame("s", b"again")


def test_what_is_given_up_is_known_by_session() -> None:
    out = outgoing()
    out.put_frame("acknowledged", b"1")
    out.take()
    out.acknowledge(1)
    out.put_frame("published", b"2")
    out.take()
    out.put_frame("waiting", b"3")
    stream = out.stream
    assert out.begin() == {"published", "waiting"}
    assert out.stream > stream
    assert out.take() is None


def test_what_is_not_kept_any_more_cannot_be_had_again() -> None:
    out = outgoing()
    for number in range(3):
        out.put(SessionDown(str(number)))
        out.take()
    out.acknowledge(2)
    assert out.rewind(1)  # acknowledged since: nothing is sent again
    assert out.take() is None
    assert not out.rewind(9)
    assert out.rewind(2)
    assert out.resent == 1
