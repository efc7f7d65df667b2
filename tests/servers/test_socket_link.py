"""The way out: frames of one turn leave together, in order, and nothing overtakes what waits."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from msgnode.core.faults import FAULTS
from msgnode.servers import cork, socket_link
from msgnode.servers.daphne_internals import InternalProtocol
from msgnode.servers.daphne_link import DaphneLink
from msgnode.sessions import turn_queue
from msgnode.sessions.outbox import Outbox
from msgnode.sessions.turn_queue import TURN, TurnQueue, Turns
from tests.fakes import Clock
from tests.node import eventually


class Transport:
    """A Twisted transport and its socket, which takes `room` bytes and then would block."""

    connected = 1
    is_gone = False

    def __init__(self, room: int = 1 << 30) -> None:
        self.room = room
        self.dataBuffer = b""
        self.offset = 0
        self._tempDataBuffer: list[bytes] = []
        self.sent: list[bytes] = []
        self.is_aborted = False
        self.socket = self

    def fileno(self) -> int:
        return 1_000_000  # no socket's

    def abortConnection(self) -> None:  # noqa: N802 (Twisted's name)
        self.is_aborted = True

    def registerProducer(self, producer: Any, streaming: bool) -> None:  # noqa: N802
        """Back-pressure is not what is shown here."""

    def unregisterProducer(self) -> None:  # noqa: N802 (Twisted's name)
        """See above."""

    def send(self, data: bytes) -> int:
        if not self.room:
            raise BlockingIOError
        taken = data[: self.room]
        self.room -= len(taken)
        self.sent.append(taken)
        return len(taken)

    def write(self, data: bytes) -> None:
        self._tempDataBuffer.append(data)

    @property
    def _tempDataLen(self) -> int:  # noqa: N802 (Twisted's name)
        return sum(map(len, self._tempDataBuffer))

    @property
    def all(self) -> bytes:
        return b"".join([*self.sent, *self._tempDataBuffer])


class Protocol:
    """An open WebSocket."""

    may_write = True
    has_closed = False
    receiver: Any = None

    def __init__(self, transport: Transport) -> None:
        self.transport = transport


def make(room: int = 1 << 30) -> tuple[DaphneLink, Transport]:
    transport = Transport(room)
    protocol: Any = Protocol(transport)
    return DaphneLink(protocol), transport


async def test_frames_of_one_turn_leave_in_one_piece_and_in_order() -> None:
    link, transport = make()
    for text in (b"{}", b"[]", b"{}"):
        link.write(text)
    assert transport.sent == []
    await asyncio.sleep(0)
    assert transport.sent == [b"\x81\x02{}\x81\x02[]\x81\x02{}"]
    link.write(b"{}")
    await asyncio.sleep(0)
    assert len(transport.sent) == 2


async def test_frames_of_fan_outs_that_take_several_turns_leave_in_one_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cork, "AT_ONCE", 2)
    links, transports = zip(*(make() for _ in range(5)), strict=True)
    aside, heard = make()
    clock = FanOuts(monkeypatch, links)
    clock.carry(4)
    for _ in range(2):
        aside.write(b"[]")
        await asyncio.sleep(0)
    assert heard.sent == [b"\x81\x02[]"] * 2, "what others are sent does not wait"
    assert [each.sent for each in transports] == [[]] * 5
    written = [0]
    while written[-1] < 5:
        await asyncio.sleep(0)
        written.append(sum(len(each.sent) for each in transports))
    assert [each for each in written if each] == [2, 4, 5], "a few sockets in a turn"
    assert [each.sent for each in transports] == [[b"\x81\x02{}" * 4]] * 5


async def test_frames_of_fan_outs_without_end_leave_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link, transport = make()
    clock = FanOuts(monkeypatch, [link])
    clock.carry(1_000)
    for _ in range(100):
        await asyncio.sleep(0)
    assert 1 < len(transport.sent) <= 100 * 2 * TURN / cork.HOLD
    assert clock.turns.under_way, "there is more to come"


async def test_a_fan_out_that_is_done_in_a_turn_leaves_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link, transport = make()
    FanOuts(monkeypatch, [link]).carry(1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert transport.sent == [b"\x81\x02{}"]


async def test_what_a_sender_says_while_the_last_is_sent_or_it_was_held_back_leaves_in_one_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cork, "AT_ONCE", 2)
    links, transports = zip(*(make() for _ in range(6)), strict=True)
    clock = FanOuts(monkeypatch, links)
    clock.carry(3)
    await turns_until(lambda: bool(transports[0].sent))
    clock.carry(1)  # two sockets have the last, four do not
    await asyncio.sleep(0)
    clock.carry(1)
    await turns_until(lambda: not clock.turns.under_way)
    await asyncio.sleep(0)  # the sender is read again
    clock.carry(2)
    for _ in range(20):
        await asyncio.sleep(0)
    assert [each.sent for each in transports] == [[b"\x81\x02{}" * 3, b"\x81\x02{}" * 4]] * 6


async def test_fan_outs_wait_no_longer_than_a_while_for_sockets_that_are_sent_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cork, "AT_ONCE", 1)
    links, transports = zip(*(make() for _ in range(50)), strict=True)
    clock = FanOuts(monkeypatch, links)
    clock.carry(2)
    await turns_until(lambda: bool(transports[0].sent))
    clock.carry(1)
    await asyncio.sleep(0)
    assert clock.turns.under_way
    clock.pass_by(1.2 * cork.HOLD)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not clock.turns.under_way
    assert not transports[-1].sent, "most sockets wait yet"


async def turns_until(is_so: Callable[[], bool]) -> None:
    for _ in range(100):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("not within 100 turns")


class FanOuts:
    """Fan-outs of one sender; each takes a turn of the loop, by a clock that stands otherwise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, links: Iterable[DaphneLink]) -> None:
        self._links = links
        self._clock = Clock()
        queue = TurnQueue(self._clock)
        for module in (cork, turn_queue):
            monkeypatch.setattr(module, "TURN_QUEUE", queue)
        monkeypatch.setattr(cork, "thread_time", self._clock)
        monkeypatch.setattr(socket_link, "CORK", cork.Cork())  # nothing of another test
        self.turns = Turns(lambda: True, lambda: None)

    def carry(self, number: int) -> None:
        """Deliver so many frames to each link."""
        for _ in range(number):
            self.turns.add(self._steps())

    def pass_by(self, seconds: float) -> None:
        """Have so much processor time be used."""
        self._clock.now += seconds

    def _steps(self) -> Iterator[None]:
        for link in self._links:
            link.write(b"{}")
        self._clock.now += 1.2 * TURN
        yield


@pytest.mark.parametrize(
    ("size", "header"),
    [
        (125, b"\x81\x7d"),
        (126, b"\x81\x7e\x00\x7e"),
        (65535, b"\x81\x7e\xff\xff"),
        (65536, b"\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00"),
    ],
)
async def test_a_frame_has_the_shortest_header_for_its_size(size: int, header: bytes) -> None:
    link, transport = make()
    link.write(b"x" * size)
    await asyncio.sleep(0)
    assert transport.all == header + b"x" * size


async def test_what_the_socket_does_not_take_waits_and_is_not_overtaken() -> None:
    link, transport = make(room=5)
    link.write(b"first")
    await asyncio.sleep(0)
    transport.room = 1 << 30
    link.write(b"second")
    await asyncio.sleep(0)
    assert transport.sent == [b"\x81\x05fir"]
    assert transport.all == b"\x81\x05first\x81\x06second"


async def test_a_socket_that_takes_nothing_or_is_lost_leaves_all_to_its_transport() -> None:
    link, transport = make(room=0)
    link.write(b"first")
    await asyncio.sleep(0)
    assert transport.sent == []
    assert transport.all == b"\x81\x05first"
    assert link.is_paused


async def test_much_in_one_turn_is_handed_over_before_its_end() -> None:
    link, transport = make()
    for _ in range(3):
        link.write(b"x" * 40_000)
    assert len(transport.sent) == 1
    await asyncio.sleep(0)
    assert len(transport.all) == 3 * 40_004


async def test_a_closed_socket_is_written_to_no_more() -> None:
    link, transport = make()
    link.write(b"{}")
    transport.connected = 0
    await asyncio.sleep(0)
    assert transport.all == b""


async def test_a_link_that_is_being_lost_takes_no_frame_and_answers_a_ping_with_its_loss() -> None:
    link, transport = make()
    answered: list[bool] = []
    link.mark_lost()
    assert link.is_paused
    link.write(b"{}")
    assert link.ping(lambda: answered.append(True))
    link.drained()
    await asyncio.sleep(0)
    assert link.is_paused
    assert transport.all == b""
    link.closed()
    assert not answered


async def test_what_is_put_while_the_peer_has_gone_waits_for_the_next_link() -> None:
    link, transport = make()
    outbox = Outbox(1000, True, lambda: None)
    outbox.attach(link)
    link.set_gone(True)
    outbox.put(b"{}")
    assert link.ping(lambda: None)
    outbox.detach()
    (next_link, next_transport) = make()
    outbox.attach(next_link)
    await asyncio.sleep(0)
    assert (transport.all, next_transport.all) == (b"", b"\x81\x02{}")


async def test_what_is_put_while_the_link_is_being_lost_waits_for_the_next_one() -> None:
    (lost, lost_transport), (link, transport) = make(), make()
    outbox = Outbox(1000, True, lambda: None)
    outbox.attach(lost)
    lost.mark_lost()
    outbox.put(b"{}")
    outbox.detach()
    outbox.attach(link)
    await asyncio.sleep(0)
    assert (lost_transport.all, transport.all) == (b"", b"\x81\x02{}")


async def test_a_link_that_fails_ends_and_those_behind_it_are_heard() -> None:
    broken, broken_transport = make(room=0)
    behind, transport = make()

    def fail(data: bytes) -> None:
        raise RuntimeError("the handler is closed")

    broken_transport.write = fail  # type: ignore[method-assign]
    failures = FAULTS.counts["link"]
    running = asyncio.create_task(broken.run(lambda _: None))
    await asyncio.sleep(0)
    broken.write(b"{}")
    behind.write(b"[]")
    await asyncio.wait_for(running, 5)
    assert transport.all == b"\x81\x02[]"
    assert broken_transport.is_aborted
    assert FAULTS.counts["link"] == failures + 1
    broken.write(b"late")
    behind.write(b"{}")
    await asyncio.sleep(0)
    assert transport.all == b"\x81\x02[]\x81\x02{}"


async def test_what_was_written_leaves_with_the_frame_of_the_close_behind_it() -> None:
    link, transport = make()
    protocol: Any = InternalProtocol()
    protocol.state, protocol.send_queue = protocol.STATE_OPEN, deque()
    protocol.transport, protocol.link = transport, link
    link.write(b"{}")
    link.write(b"[]")
    protocol.sendData(b"\x88\x02\x03\xe8")
    assert transport.sent == [b"\x81\x02{}\x81\x02[]\x88\x02\x03\xe8"]
    await asyncio.sleep(0)
    assert len(transport.sent) == 1


async def test_a_closing_handshake_that_fails_ends_the_link() -> None:
    link, transport = make()
    link._protocol.sendClose = None  # type: ignore[assignment]
    running = asyncio.create_task(link.run(lambda _: None))
    await asyncio.sleep(0)
    link.close(3001, "come back")
    await asyncio.wait_for(running, 5)
    assert transport.is_aborted


@pytest.fixture
def connected() -> Iterator[tuple[DaphneLink, Transport, socket.socket]]:
    """A link over a real connection, and the peer's end of that."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # the peer's, too
        peer = socket.create_connection(server.getsockname())
        own, _ = server.accept()
    own.setblocking(False)
    link, transport = make()
    transport.socket = own  # type: ignore[assignment]
    with own, peer:
        yield link, transport, peer


FRAME = b"{" + b" " * 1_000 + b"}"


def sent(link: DaphneLink, times: int = 1) -> None:
    for _ in range(times):
        link.write(FRAME)
    link.uncork()


async def until_received(link: DaphneLink) -> None:
    async with asyncio.timeout(5):
        while not link.is_all_received:
            await eventually()


async def test_what_the_peers_system_has_taken_is_received_though_the_peer_did_not_read_it(
    connected: tuple[DaphneLink, Transport, socket.socket],
) -> None:
    link, _, _ = connected
    assert link.is_all_received
    link.write(FRAME)
    assert not link.is_all_received  # it waits for the end of the turn
    link.uncork()
    await until_received(link)


async def test_what_was_sent_to_a_peer_that_had_gone_is_not_received_also_once_the_socket_is_closed(
    connected: tuple[DaphneLink, Transport, socket.socket],
) -> None:
    link, transport, peer = connected
    peer.close()
    sent(link)
    assert not link.is_all_received
    link.mark_ended()
    transport.socket.close()  # type: ignore[attr-defined]
    assert not link.is_all_received


async def test_what_waits_in_the_kernel_or_the_transport_is_not_received(
    connected: tuple[DaphneLink, Transport, socket.socket],
) -> None:
    link, _, _ = connected
    sent(link, 2_000)  # more than both kernels' buffers take
    assert not link.is_all_received


async def test_a_ping_that_nobody_has_confirmed_is_no_frame_that_may_be_lost(
    connected: tuple[DaphneLink, Transport, socket.socket],
) -> None:
    link, _, peer = connected
    sent(link)
    await until_received(link)
    peer.close()
    link.ping(lambda: None)
    assert link.is_all_received


async def test_a_frame_for_a_socket_that_the_peer_has_begun_to_close_is_not_received(
    connected: tuple[DaphneLink, Transport, socket.socket],
) -> None:
    link, _, _ = connected
    link._protocol.may_write = False  # type: ignore[misc]
    sent(link)
    assert not link.is_all_received
