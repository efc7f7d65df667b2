"""Two links of nodes in one process, whose sockets the test joins and cuts: proofs, resumption.

`joined` is what dialling does, without a network.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from dataclasses import replace
from typing import Any

import pytest
from websockets.asyncio.server import serve

from msgnode.core.faults import FAULTS
from msgnode.federation import link_protocol as protocol
from msgnode.federation import link_socket
from msgnode.federation.link_keys import OwnKey, own_keys
from msgnode.federation.link_protocol import Hello, Inbox, LinkFault
from msgnode.federation.link_socket import LinkConnection, LinkEndpoint, OwnNode
from msgnode.federation.link_wire import Wire

pytestmark = pytest.mark.asyncio

A, B = "a.example", "b.example"


class End:
    """Whoever serves a peer; the Peer of its link."""

    def __init__(self, own: str, peer: str, *secrets: str) -> None:
        self.heard: list[bytes] = []
        self.new: list[bool] = []
        self.faults: list[LinkFault] = []
        self.unknown = self.renewed = self.gaps = 0
        self.is_held_back = False
        self.released = asyncio.Event()
        node = OwnNode(own, own_keys(secrets or ("secret",), own), 1024 * 1024)
        self.wire = Wire(node, peer, "", self)

    def opened(self, is_new: bool) -> None:
        self.new.append(is_new)

    def lost(self, fault: LinkFault) -> None:
        self.faults.append(fault)

    def said(self, text: bytes) -> None:
        self.heard.append(text)

    def has_room(self) -> None:
        pass

    def gap(self) -> None:
        self.gaps += 1

    def key_is_unknown(self) -> None:
        self.unknown += 1

    def renew(self) -> None:
        self.renewed += 1

    async def ready(self) -> None:
        if self.is_held_back:
            await self.released.wait()

    def say(self, *numbers: int) -> None:
        for number in numbers:
            self.wire.send(b"%d" % number)


class Half:
    """One half of a socket; what is written arrives in a later turn, until it is cut."""

    def __init__(self) -> None:
        self.other: LinkConnection | None = None
        self.is_cut = False
        self.code = 0
        self.written: list[bytes] = []
        self.unsent_bytes = 0

    def write(self, frame: bytes) -> None:
        self.written.append(frame)
        asyncio.get_running_loop().call_soon(self._arrive, frame)

    def _arrive(self, frame: bytes) -> None:
        if self.other is not None and not self.is_cut:
            self.other.received(frame)

    def close(self, code: int, reason: str) -> None:
        self.code = self.code or code
        if self.other is not None and not self.is_cut:
            asyncio.get_running_loop().call_soon(self.other.lost, LinkFault(code, reason))

    def drop(self) -> None:
        self.is_cut = True


class Joined:
    """A socket that `dials` has opened to `accepts`."""

    def __init__(self, dials: End, accepts: End) -> None:
        self.there, self.here = Half(), Half()
        self.accepted = LinkConnection(self.there, accepts.wire.own, lambda _: accepts.wire)
        self.here.other = self.accepted
        self.dialled = LinkConnection(self.here, dials.wire.own, lambda _: dials.wire, dials.wire)
        self.there.other = self.dialled

    def cut(self, is_noticed: bool = True) -> None:
        self.here.is_cut = self.there.is_cut = True
        if is_noticed:
            for each in (self.accepted, self.dialled):
                each.lost(LinkFault(1006, "cut"))


def trust(one: End, other: End, keys: list[OwnKey] | None = None) -> None:
    found = other.wire.own.keys if keys is None else keys
    one.wire.trust({each.kid: {"x": each.x, "since": 1} for each in found})


def ends() -> tuple[End, End]:
    """The links of two nodes that trust each other."""
    a, b = End(A, B), End(B, A)
    trust(a, b)
    trust(b, a)
    return a, b


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  (what is waited for tells nobody)
            await asyncio.sleep(0.001)


async def opened(a: End, b: End) -> None:
    await until(lambda: a.wire.is_open and b.wire.is_open)


def numbers(end: End) -> list[int]:
    return [int(each) for each in end.heard]


async def test_two_nodes_that_trust_each_others_keys_exchange_messages() -> None:
    a, b = ends()
    Joined(a, b)
    await opened(a, b)
    a.say(1, 2)
    b.say(3)
    await until(lambda: numbers(b) == [1, 2] and numbers(a) == [3])
    assert (a.new, b.new, a.renewed, b.renewed) == ([True], [True], 1, 1)


async def test_case_l62_the_first_message_of_a_quiet_link_leaves_at_once_and_alone() -> None:
    a, b = ends()
    link = Joined(a, b)
    await opened(a, b)
    for number in range(3):
        a.say(number)
        await asyncio.sleep(0)  # the next turn of the loop
        assert link.here.written[-1].endswith(b'"items":[%d]}}' % number)
        await until(lambda: a.wire.outbox.is_idle)


async def test_case_l62_messages_that_follow_one_by_one_wait_for_no_acknowledgement() -> None:
    a, b = ends()
    link = Joined(a, b)
    await opened(a, b)
    for number in range(3 * protocol.WINDOW):
        a.say(number)
        for _ in range(4):  # turns of the loop: long before anything is due
            await asyncio.sleep(0)
        assert numbers(b)[-1] == number
    acknowledged = [each for each in link.there.written if each.startswith(b'{"ack"')]
    assert len(acknowledged) <= 3 * 2 + 1, "half a window by each"


async def test_case_l62_what_comes_while_one_is_under_way_leaves_together() -> None:
    a, b = ends()
    link = Joined(a, b)
    await opened(a, b)
    a.say(*range(1_000))
    await until(lambda: len(b.heard) == 1_000)
    batches = [each for each in link.here.written if each.startswith(b'{"send"')]
    assert len(batches) <= 12
    assert numbers(b) == list(range(1_000))


@pytest.mark.parametrize("is_noticed", [True, False])
async def test_case_66_after_a_cut_all_goes_on_in_order_and_once(is_noticed: bool) -> None:
    """A half-open socket is not noticed by both: the next one takes its place all the same."""
    a, b = ends()
    link = Joined(a, b)
    await opened(a, b)
    for start in range(0, 400, 100):
        a.say(*range(start, start + 50))
        b.say(*range(start, start + 50))
        await asyncio.sleep(0)
        link.cut(is_noticed)
        if not is_noticed:
            link.dialled.lost(LinkFault(1006, "cut"))
        a.say(*range(start + 50, start + 100))
        b.say(*range(start + 50, start + 100))
        link = Joined(a, b)
        await until(lambda: a.wire.is_open)
    await until(lambda: len(a.heard) == len(b.heard) == 400)
    assert numbers(a) == numbers(b) == list(range(400))
    assert a.new == [True] + [False] * 4


async def test_case_l65_a_node_with_a_new_life_begins_anew_at_both_ends() -> None:
    a, b = ends()
    link = Joined(a, b)
    await opened(a, b)
    a.say(1)
    await until(lambda: numbers(b) == [1])
    link.cut()
    a.say(2)  # is dropped with the life: whoever has asked is told
    again = End(B, A)
    trust(again, a)
    Joined(a, again)
    await opened(a, again)
    a.say(3)
    await until(lambda: numbers(again) == [3])
    assert a.new == [True, True]
    assert a.renewed == 2


async def test_a_link_that_ends_as_soon_as_it_is_open_is_dialled_after_longer_and_longer() -> None:
    a, b = ends()
    pauses = []
    for _ in range(7):
        link = Joined(a, b)
        await opened(a, b)
        link.cut()
        pauses.append(a.wire._pause_after(LinkFault(1006, "")))
    assert pauses[0] <= 0.1
    assert pauses[-1] > 2.0


async def test_a_node_that_is_away_is_met_soon_after_its_return_however_long_it_was_away() -> None:
    """Nor does a refusal then find the pauses long already."""
    a, _ = ends()
    absences = [a.wire._pause_after(LinkFault(protocol.ABSENT, "")) for _ in range(20)]
    assert 1.0 <= max(absences) <= 2.0
    refusals = [a.wire._pause_after(LinkFault(protocol.BAD_PROOF, "")) for _ in range(8)]
    assert refusals[0] <= 0.1
    assert refusals[-1] > 2.0


@pytest.mark.parametrize(
    ("status", "code"),
    [(502, protocol.ABSENT), (503, protocol.ABSENT), (426, protocol.NOT_ALLOWED)],
)
async def test_a_proxy_that_does_not_reach_the_node_refuses_nothing(status: int, code: int) -> None:
    def answer(connection: Any, request: Any) -> Any:
        return connection.respond(status, "")

    async def never(_: Any) -> None:
        raise AssertionError("it was accepted")

    a, _ = ends()
    a.wire.own = replace(a.wire.own, networks=[ipaddress.ip_network("127.0.0.0/8")])
    async with serve(never, "127.0.0.1", 0, process_request=answer) as server:
        a.wire.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        fault = await a.wire.dial()
    assert fault.code == code
    assert f"answered {status}" in str(fault)


async def test_a_message_at_which_the_node_fails_takes_no_other_of_its_batch_along() -> None:
    a, b = ends()
    link = Joined(a, b)
    await opened(a, b)
    hear = b.said

    def said(text: bytes) -> None:
        if text == b"2":
            raise ValueError("a message that the node fails at")
        hear(text)

    b.said = said  # type: ignore[method-assign]
    a.say(1, 2, 3)
    await until(lambda: numbers(b) == [1, 3] and a.wire.outbox.is_idle)
    assert link.accepted.fault is None


async def test_case_l66_a_node_that_goes_on_from_an_earlier_state_begins_anew() -> None:
    """A machine restored as it was, in the same life: what it has forgotten is not guessed at."""
    a, b = ends()
    link = Joined(a, b)
    await opened(a, b)
    a.say(1)
    await until(lambda: numbers(b) == [1] and a.wire.outbox.is_idle)
    link.cut()
    b.wire.inbox = Inbox()
    link = Joined(a, b)
    await until(lambda: link.dialled.fault)
    assert link.dialled.fault is not None
    assert link.dialled.fault.code == protocol.BAD_FRAME
    a.wire.begin_anew()  # whoever serves the peer does that after ten seconds
    Joined(a, b)
    await opened(a, b)
    a.say(2)
    await until(lambda: numbers(b) == [1, 2])


async def refused(a: End, b: End, code: int, words: str) -> None:
    """A link that is not made, which both ends know the reason of."""
    link = Joined(a, b)
    await until(lambda: link.dialled.fault and link.accepted.fault)
    for fault in (link.dialled.fault, link.accepted.fault):
        assert fault is not None
        assert fault.code == code, fault
        assert words in str(fault)
    assert not (a.wire.is_open or b.wire.is_open or a.heard or b.heard)


async def test_case_64_a_key_that_does_not_count_is_named_and_looked_at_again() -> None:
    a, b = ends()
    trust(b, a, own_keys(["another"], A))
    await refused(a, b, protocol.BAD_PROOF, a.wire.own.keys[0].kid)
    assert b.unknown == 1


async def test_case_64_a_proof_by_another_key_than_the_hello_names_is_refused() -> None:
    a, b = ends()
    [key], [other] = a.wire.own.keys, own_keys(["another"], A)
    a.wire.own = OwnNode(A, [OwnKey(key.kid, other.private)], 1024 * 1024)
    link = Joined(a, b)
    link.dialled._own = a.wire.own
    await until(lambda: link.accepted.fault)
    assert link.accepted.fault is not None
    assert link.accepted.fault.code == protocol.BAD_PROOF
    assert not b.wire.is_open


async def test_case_64_what_was_said_on_another_socket_proves_nothing() -> None:
    """A recorded hello and proof, sent again; and a proof of the other's, sent back."""
    a, b = ends()
    link = Joined(a, b)
    await opened(a, b)
    link.cut()
    for proofs in (link.here.written, link.there.written):
        thief = Half()
        accepted = LinkConnection(thief, b.wire.own, lambda _: b.wire)
        accepted.received(link.here.written[0])
        proof = next(each for each in proofs if b'"proof"' in each)
        proof = proof[proof.index(b'"proof"') :]
        accepted.received(
            b"{%b" % proof if b"ready" in proof else b'{"ready":{"life":"x","received":0},' + proof
        )  # noqa: E501
        assert thief.code == protocol.BAD_PROOF
    assert not b.wire.is_open


async def test_case_64_another_domain_than_was_dialled_is_refused() -> None:
    a, b = ends()
    c = End("c.example", A)
    trust(c, a)
    link = Joined(a, b)
    link.here.other = LinkConnection(link.there, c.wire.own, lambda _: c.wire)
    await until(lambda: link.dialled.fault or link.there.code)
    assert link.there.code == protocol.BAD_NAME
    assert not a.wire.is_open


async def test_case_l69_a_link_ends_with_its_key_and_one_that_is_trusted_begins_at_once() -> None:
    a, b = ends()
    link = Joined(a, b)
    await opened(a, b)
    trust(b, a, [])
    await until(lambda: not a.wire.is_open)
    assert "revoked" in str(link.dialled.fault)
    await refused(a, b, protocol.NOT_ALLOWED, "counts at")
    trust(b, a)
    Joined(a, b)
    await opened(a, b)
    assert a.new == [True, False]  # it is the same life


async def test_case_l69_a_node_whose_new_key_is_not_known_yet_tries_its_earlier_one() -> None:
    a, b = End(A, B, "new", "old"), End(B, A)
    trust(a, b)
    trust(b, a, own_keys(["old"], A))
    await refused(a, b, protocol.BAD_PROOF, "unknown or withdrawn")
    a.wire._pause_after(LinkFault(protocol.BAD_PROOF, ""))
    Joined(a, b)
    await opened(a, b)


@pytest.mark.parametrize("first", [0, 1])
async def test_case_70_of_two_sockets_that_are_dialled_at_once_one_stays(first: int) -> None:
    a, b = ends()
    pair = [(a, b), (b, a)]
    for number in range(50):
        links = [Joined(*pair[first]), Joined(*pair[1 - first])]
        a.say(number)
        b.say(number)
        await until(lambda most=number + 1: len(a.heard) == len(b.heard) == most)
        await until(lambda links=links: sum(each.dialled.fault is None for each in links) == 1)
        for each in links:
            each.cut()
    assert numbers(a) == numbers(b) == list(range(50))


async def test_case_l63_a_node_that_takes_no_more_is_sent_no_more_than_a_window() -> None:
    a, b = ends()
    link = Joined(a, b)
    await opened(a, b)
    b.is_held_back = True
    for number in range(2_000):
        a.say(number)
        await asyncio.sleep(0)
    assert len(b.heard) <= protocol.WINDOW * protocol.MAX_ITEMS
    assert link.accepted.fault is None
    b.is_held_back = False
    b.released.set()
    await until(lambda: len(b.heard) == 2_000)
    assert numbers(b) == list(range(2_000))


async def test_case_l64_a_socket_that_is_silent_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_socket, "HEARTBEAT_SECONDS", 0.02)
    monkeypatch.setattr(link_socket, "SILENCE_SECONDS", 0.1)
    a, b = ends()
    link = Joined(a, b)
    await opened(a, b)
    await until(lambda: a.wire.round_trip > 0)
    link.here.is_cut = link.there.is_cut = True  # and nobody is told
    await until(lambda: link.dialled.fault and link.accepted.fault)
    assert "nothing was heard" in str(link.dialled.fault)


async def test_who_proves_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_socket, "HANDSHAKE_SECONDS", 0.02)
    _, b = ends()
    half = Half()
    LinkConnection(half, b.wire.own, lambda _: b.wire)
    await until(lambda: half.code == protocol.LATE)


@pytest.mark.parametrize(
    "frame",
    [b'{"send":{"seq":1,"ack":0,"items":[1]}}', b'{"ack":{"seq":0}}', b'{"gap":{}}', b'{"ping":1}',
     b'{"proof":"x","ready":{"life":"x","received":0}}', b"{}", b"[", b"\xff"],
)  # fmt: skip
async def test_nothing_is_taken_of_who_has_not_proved_who_he_is(frame: bytes) -> None:
    _, b = ends()
    half = Half()
    LinkConnection(half, b.wire.own, lambda _: b.wire).received(frame)
    assert half.code == protocol.BAD_FRAME
    assert not b.heard


async def test_a_hello_of_which_a_part_is_no_text_is_refused_and_no_fault_of_the_node() -> None:
    a, b = ends()
    hello = Hello(A, B, "nonce", a.wire.own.keys[0].kid, time.time(), "life")
    half, faults = Half(), FAULTS.counts["link"]
    text = protocol.encode(hello)[:-1] + b',"more":"\xff"}'
    LinkConnection(half, b.wire.own, lambda _: b.wire).received(b'{"hello":%b}' % text)
    assert (half.code, FAULTS.counts["link"]) == (protocol.BAD_FRAME, faults)


@pytest.mark.parametrize("pong", [b"-1e308", b"1e308", b"-0.0", b"1" + b"0" * 300])
async def test_a_pong_of_any_number_leaves_figures_that_can_be_stored(pong: bytes) -> None:
    a, b = ends()
    link = Joined(a, b)
    await opened(a, b)
    link.dialled.received(b'{"pong":%b}' % pong)
    assert link.dialled.fault is None
    assert 0 <= a.wire.figures()["round_trip_ms"] <= 1000 * link_socket.SILENCE_SECONDS


async def test_who_asks_and_reads_nothing_is_closed_before_the_answers_fill_the_memory() -> None:
    a, b = ends()
    link = Joined(a, b)
    await opened(a, b)
    link.here.unsent_bytes = 16 * 1024 * 1024
    link.dialled.received(b'{"ping":1}')
    assert link.here.code == protocol.TOO_LARGE
    assert link.here.written[-1] != b'{"pong":1.0}'


async def test_who_reads_nothing_and_does_not_ask_is_closed_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_socket, "HEARTBEAT_SECONDS", 0.02)
    a, b = ends()
    link = Joined(a, b)
    await opened(a, b)
    link.here.unsent_bytes = 16 * 1024 * 1024
    await until(lambda: link.here.code == protocol.TOO_LARGE)


async def test_what_the_other_says_of_a_fault_is_told_in_few_words_that_can_be_stored() -> None:
    a, b = ends()
    link = Joined(a, b)
    await opened(a, b)
    link.dialled.lost(LinkFault(4000, "because\0\n\x1b[31m" + "x" * 100_000))
    told = a.wire.figures()["error"]
    assert "because" in told
    assert told.isprintable()
    assert len(told) < 400


class AcceptedSocket(Half):
    """A socket that the endpoint has been given; it lasts until it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = asyncio.Event()

    async def run(self, receiver: Any) -> None:
        await self.ended.wait()

    def close(self, code: int, reason: str) -> None:
        super().close(code, reason)
        self.ended.set()


async def test_however_many_prove_nothing_another_is_heard() -> None:
    _, b = ends()
    endpoint = LinkEndpoint(b.wire.own, lambda _: b.wire)
    told: list[str] = []

    async def send(message: dict[str, Any]) -> None:
        told.append(message["type"])

    async def receive() -> dict[str, Any]:
        return {}

    sockets = [AcceptedSocket() for _ in range(link_socket.HANDSHAKES_AT_ONCE + 1)]
    scopes = [
        {"subprotocols": [protocol.SUBPROTOCOL], "extensions": {"msgnode.link": each}}
        for each in sockets
    ]
    served = [asyncio.create_task(endpoint(each, receive, send)) for each in scopes]
    await until(lambda: sockets[0].code == protocol.LATE)
    assert told == ["websocket.accept"] * len(sockets)
    assert not any(each.code for each in sockets[1:])
    for each in sockets:
        each.close(1000, "")
    await asyncio.gather(*served)


async def test_who_comes_many_times_and_proves_nothing_ends_nobody_elses_sockets() -> None:
    _, b = ends()
    endpoint = LinkEndpoint(b.wire.own, lambda _: b.wire)

    async def send(message: dict[str, Any]) -> None:
        """Accepted."""

    async def receive() -> dict[str, Any]:
        return {}

    peers = "192.0.2.1"
    sources = [peers, *["203.0.113.9"] * (link_socket.HANDSHAKES_AT_ONCE + 50)]
    sockets = [AcceptedSocket() for _ in sources]
    served = [
        asyncio.create_task(
            endpoint(
                {
                    "subprotocols": [protocol.SUBPROTOCOL],
                    "extensions": {"msgnode.link": each},
                    "client": (source, 4711),
                },
                receive,
                send,
            )
        )
        for each, source in zip(sockets, sources, strict=True)
    ]
    await until(lambda: sum(each.code == protocol.LATE for each in sockets) == 51)
    assert not sockets[0].code
    for each in sockets:
        each.close(1000, "")
    await asyncio.gather(*served)


async def test_a_gap_and_a_fault_of_whoever_serves_the_peer() -> None:
    a, b = ends()
    Joined(a, b)
    await opened(a, b)
    a.wire.tell_of_gap()
    await until(lambda: b.gaps == 1)
