"""Other runtimes come and go: those without use are forgotten, wholly, and no others."""

from __future__ import annotations

import asyncio
import gc
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import pytest
from bus_harness import R, turn
from hypothesis import given, settings
from hypothesis import strategies as st

from msgnode.runtime.python.message_bus import MessageBus
from msgnode.runtime.python.messages import Message, answer_to
from msgnode.runtime.python.p2p import set_up
from msgnode.runtime.python.p2p.peer_to_peer import PeerToPeer
from msgnode.runtime.python.p2p.remote_runtime import KnownRuntimes, RemoteRuntime
from msgnode.runtime.python.p2p.settings import P2PSettings, P2PTimers
from msgnode.runtime.python.settings import Settings

TIMERS = P2PTimers(peers=5, forget=600.0, linger=60.0)


class Other:
    """A peer as far as it is kept."""

    def __init__(self, number: int) -> None:
        self.runtime = f"hyperty-runtime://d/{number}"
        self.via = f"runtime://d/p2prequester/{number}"
        self.stubs: OrderedDict[str, None] = OrderedDict()
        self.used_at = 0.0
        self.link = SimpleNamespace(epoch="", is_open=False)
        self.needed = self.is_on_channel = False
        self.instance = self.handler = ""
        self.handling: object = None
        self.dialling: object = None
        self.forget: Any = lambda: None

    @property
    def is_busy(self) -> bool:
        is_in_use = self.link.is_open or self.is_on_channel
        return is_in_use or self.handling is not None or self.dialling is not None

    def is_needed(self) -> bool:
        return self.needed


def known(gone: list[Any] | None = None) -> Any:
    found = KnownRuntimes(TIMERS)
    add = found.add

    def adding(other: Any, now: float) -> bool:
        other.forget = lambda: gone.append(other) if gone is not None else None
        return add(other, now)

    found.add = adding  # type: ignore[method-assign]
    return found


def filled(count: int) -> tuple[Any, list[Other], list[Any]]:
    gone: list[Any] = []
    peers, others = known(gone), [Other(number) for number in range(count)]
    for at, other in enumerate(others):
        assert peers.add(other, float(at))
    return peers, others, gone


def test_the_one_that_was_unused_longest_makes_room() -> None:
    peers, others, gone = filled(5)
    others[0].used_at = 9.0
    assert peers.add(Other(5), 10.0)
    assert gone == [others[1]]
    assert peers.of("runtime://d/1") is None and peers.of_via(others[1].via) is None
    assert peers.of("runtime://d/0") is peers.of("hyperty-runtime://d/0") is others[0]


def test_case_p29_who_talks_with_one_tab_is_set_aside_for_the_other_and_both_are_forgotten() -> (
    None
):
    gone: list[Any] = []
    peers, first, second = known(gone), Other(1), Other(1)
    second.via = "runtime://d/p2prequester/second"
    url = "runtime://d/1"
    assert peers.instance(url, "x") is None
    peers.add(first, 0.0)
    assert peers.instance(url, "x") is first  # it has not said yet which one it is
    first.instance = "x"
    assert peers.instance(url, "y") is first  # without a channel: it has started again
    first.link.is_open = True
    assert peers.instance(url, "x") is peers.instance(url, "") is first
    assert peers.instance(url, "y") is None
    second.instance = "y"
    peers.add(second, 1.0)
    assert peers.of(url) is second and set(peers.all_of(url)) == {first, second}
    assert peers.instance(url, "x") is peers.of(url) is first
    assert peers.instance(url, "y") is peers.of(url) is second and len(peers) == 2
    second.instance = "x"  # whatever the other side says, nobody is lost
    second.link.is_open = True
    assert peers.instance(url, "z") is None and len(peers) == 2
    peers.forget_unused(10_000.0)
    assert set(gone) == {first, second} and not len(peers)
    assert peers.of_via(first.via) is peers.of_via(second.via) is None


def test_who_is_needed_or_has_just_talked_does_not_go_and_nobody_new_comes() -> None:
    peers, others, gone = filled(5)
    for other in others[:3]:
        other.needed = True
    for other in others[3:]:
        other.link.epoch = "1"
    assert not peers.add(Other(5), 60.0)
    assert not gone and len(peers) == 5
    assert peers.add(Other(5), 63.0)
    assert gone == [others[3]]


def test_what_is_unused_is_forgotten_in_its_time() -> None:
    peers, others, gone = filled(5)
    others[2].needed = True
    peers.forget_unused(602.5)
    assert gone == [others[0], others[1]] and len(peers) == 3


def test_a_stub_of_one_runtime_is_never_anothers_and_old_ones_go() -> None:
    peers, (one, other, *_), _ = filled(3)
    peers.signals(one, "stub")
    assert not peers.signals(other, "stub")
    for number in range(TIMERS.keep_epochs + 1):
        peers.signals(one, f"stub {number}")
    assert peers.of_stub("stub") is None and peers.of_stub("stub 0") is one
    peers.signals(other, "stub")
    assert peers.of_stub("stub") is other


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["add", "use", "need", "free", "talk", "signal", "sweep"]),
        st.integers(0, 11),
        st.floats(0, 200),
    ),
    max_size=120,
)


@settings(deadline=None)
@given(ACTS)
def test_whatever_happens_the_bound_holds_and_who_is_needed_stays(
    acts: list[tuple[str, int, float]],
) -> None:
    gone: list[Any] = []
    peers, others, now = known(gone), [Other(number) for number in range(12)], 0.0
    for act, number, passed in acts:
        now += passed
        other, before = others[number], list(peers.by_runtime.values())
        is_there = other in before
        match act:
            case "add" if not is_there:
                added = peers.add(other, now)
                assert added or all(each.needed or each.link.epoch for each in before)
            case "use":
                other.used_at = now
            case "need" | "free" if is_there:
                other.needed = act == "need"
            case "talk" if is_there:
                other.link.epoch, other.used_at = "1", now
            case "signal" if is_there:
                peers.signals(other, f"{number} at {now}")
            case "sweep":
                peers.forget_unused(now)
                assert all(
                    each.needed or now - each.used_at < 600 for each in peers.by_runtime.values()
                )
        for each in gone:
            assert not each.needed and (not each.link.epoch or now - each.used_at >= 60)
            each.stubs.clear()
            each.link.epoch = ""
        gone.clear()
        here = list(peers.by_runtime.values())
        assert len(here) <= TIMERS.peers
        assert list(peers._by_via.values()) == here
        stubs = [stub for each in here for stub in each.stubs]
        assert sorted(peers._by_stub) == sorted(stubs)
        assert all(len(each.stubs) <= TIMERS.keep_epochs + 1 for each in here)


class Refusing:
    """A way outside at whose other end everybody but the node refuses."""

    def __init__(self, bus: MessageBus, code: int = 404) -> None:
        self.bus = bus
        self.code = code
        self.settings = Settings("d")
        self.claimed: set[str] = set()
        self.most = 0

    def send(self, message: Message, size: int, stub: str) -> str:
        kind, body = message["type"], message["body"]
        if kind in ("subscribe", "unsubscribe"):
            change = self.claimed.update if kind == "subscribe" else self.claimed.difference_update
            change(body.get("resources") or body.get("subscribe"))
            self.most = max(self.most, len(self.claimed))
        if kind == "update":
            return "runtime://d/protostub/1"
        is_node = message["to"].startswith("domain:")
        answer = answer_to(message, 200 if is_node else self.code, "")
        asyncio.get_running_loop().call_soon(self.bus.receive, answer, "runtime://d/protostub/1")
        return "runtime://d/protostub/1"


class NoConnection:
    """A peer connection that never comes about."""

    def __init__(self, *_: Any) -> None:
        self.on_open: Any = None

    async def offer(self) -> dict[str, str]:
        return {"sdp": "v=0", "type": "offer"}

    def close(self) -> None:
        pass


def peers_in_memory() -> int:
    gc.collect()
    return sum(type(each) is RemoteRuntime for each in gc.get_objects())


async def test_a_thousand_come_and_go_and_nothing_is_left_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 1_000
    monkeypatch.setattr(set_up, "RtcConnection", NoConnection)
    bus = MessageBus(R)
    node = Refusing(bus)
    p2p = PeerToPeer(P2PSettings(timers=P2PTimers(peers=50, forget=600.0)), node)  # type: ignore[arg-type]
    of_other_tests = peers_in_memory()
    for number in range(count):
        other = f"runtime://d/other-{number}"
        named = {"p2p": True, "p2pHandler": f"{other}/p2phandler/1", "p2pRequester": "x"}
        bus.post_message(
            {"type": "update", "from": f"{R}/app", "to": f"{other}/app", "body": named}
        )
        if number % 40 == 39:
            await turn()
            while any(each.dialling for each in p2p.known.values()):
                await turn()
    assert len(p2p.known) == 50 and f"runtime://d/other-{count - 1}" in p2p.known
    assert bus.counters["p2p.too-many-peers"] == 0
    assert peers_in_memory() - of_other_tests <= 50
    assert len(bus._listeners) <= 52 and len(node.claimed) <= 51
    assert not p2p._set_ups._objects and not p2p._set_ups._awaiting
    p2p._known.forget_unused(asyncio.get_running_loop().time() + 601)
    await turn()
    assert not p2p.known and not node.claimed and node.most <= 51 + 3 * 40
    await p2p.close()
    assert not bus._listeners


async def test_where_nobody_may_be_forgotten_a_message_still_goes_by_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(set_up, "RtcConnection", NoConnection)
    monkeypatch.setattr(RemoteRuntime, "is_needed", lambda peer: True)
    bus = MessageBus(R)
    p2p = PeerToPeer(P2PSettings(timers=P2PTimers(peers=1)), Refusing(bus))  # type: ignore[arg-type]
    codes = []
    for number in range(3):
        other = f"runtime://d/other-{number}"
        named = {"p2p": True, "p2pHandler": f"{other}/p2phandler/1", "p2pRequester": "x"}
        message = {"type": "create", "from": f"{R}/app", "to": f"{other}/app", "body": named}
        codes.append((await bus.request(message, 5))["body"]["code"])
    assert codes == [404, 404, 404]  # as the node says
    assert bus.counters["p2p.too-many-peers"] == 2 and len(p2p.known) == 1
    await p2p.close()


async def test_case_p26_who_gives_way_does_not_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other side says that it invites, too, and never does."""
    monkeypatch.setattr(set_up, "RtcConnection", NoConnection)
    bus = MessageBus(R)
    states: list[str] = []
    failed = asyncio.Event()

    def told(message: Message) -> None:
        states.append(message["body"]["value"])
        if states[-1] == "failed":
            failed.set()

    bus.add_listener(f"{R}/status", told)
    timers = P2PTimers(set_up=0.05)
    p2p = PeerToPeer(P2PSettings(timers=timers), Refusing(bus, 409))  # type: ignore[arg-type]
    named = {"p2p": True, "p2pHandler": "runtime://d/2/p2phandler/1", "p2pRequester": "x"}
    bus.post_message(
        {"type": "update", "from": f"{R}/app", "to": "runtime://d/2/app", "body": named}
    )
    async with asyncio.timeout(20):
        await failed.wait()
    assert states == ["created", "in-progress", "failed"]
    assert not p2p.known["runtime://d/2"].is_needed()
    await p2p.close()


def test_case_p29_a_tab_that_invites_is_set_aside_for_another_that_does_so_meanwhile() -> None:
    peers, first = known(), Other(1)
    peers.add(first, 0.0)
    first.instance, first.handling = "x", object()
    assert peers.instance("runtime://d/1", "x") is first
    assert peers.instance("runtime://d/1", "y") is None
    assert peers.of("runtime://d/1") is None and peers.all_of("runtime://d/1") == [first]
