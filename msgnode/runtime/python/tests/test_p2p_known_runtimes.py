"""Other runtimes come and go: those without use are forgotten, wholly, and no others."""

from __future__ import annotations

import asyncio
import gc
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from p2p_runtimes import NOW, FakeConnection, FakeLoop, Net, Talker
from test_p2p import cases

from msgnode.runtime.python.p2p import set_up
from msgnode.runtime.python.p2p.remote_runtime import KnownRuntimes, RemoteRuntime
from msgnode.runtime.python.p2p.settings import P2PTimers

TIMERS: Any = P2PTimers(peers=5, forget=600.0, linger=60.0)
NAMES = {"usedAt": "used_at", "keepEpochs": "keep_epochs"}


class Kept:
    """A remote runtime as far as it is kept; "1" and "1b" are tabs of one runtime URL."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.runtime = f"hyperty-runtime://d/{key.rstrip('b')}"
        self.via = f"runtime://d/p2prequester/{key}"
        self.stubs: OrderedDict[str, None] = OrderedDict()
        self.used_at = 0.0
        self.link = SimpleNamespace(epoch="")
        self.needed = self.is_gone = self.isOpen = self.handling = self.is_on_channel = False
        self.instance = self.handler = ""

    @property
    def is_busy(self) -> bool:
        return self.isOpen or self.handling

    def is_needed(self) -> bool:
        return self.needed

    def forget(self) -> None:
        self.is_gone = True


@pytest.mark.parametrize("case", cases("known"))
def test_known_runtimes(case: dict[str, Any]) -> None:
    timers = {NAMES.get(name, name): value for name, value in case["timers"].items()}
    known: Any = KnownRuntimes(P2PTimers(**timers))
    kept: dict[str, Kept] = {}

    def of(key: str) -> Kept:
        return kept.setdefault(key, Kept(key))

    def key(found: Kept | None) -> str | None:
        return None if found is None else found.key

    def put(name: str, values: dict[str, Any]) -> None:
        for each, value in values.items():
            place = of(name).link if each == "epoch" else of(name)
            setattr(place, NAMES.get(each, each), value)

    does: dict[str, Callable[..., None]] = {"set": put, "forgetUnused": known.forget_unused}
    asks: dict[str, Callable[..., Any]] = {
        "add": lambda name, now: known.add(of(name), now),
        "of": lambda *words: key(known.of(*words)),
        "toDial": lambda *words: key(known.to_dial(*words)),
        "instance": lambda *words: key(known.instance(*words)),
        "ofVia": lambda name: key(known.of_via(of(name).via)),
        "ofStub": lambda stub: key(known.of_stub(stub)),
        "allOf": lambda runtime: sorted(each.key for each in known.all_of(runtime)),
        "signals": lambda name, stub: known.signals(of(name), stub),
        "gone": lambda: sorted(each.key for each in kept.values() if each.is_gone),
        "size": lambda: len(known),
    }
    for act, *words in case["steps"]:
        if act in does:
            does[act](*words)
        else:
            assert asks[act](*words[:-1]) == words[-1], (act, words)


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
    known: Any = KnownRuntimes(TIMERS)
    others, now = [Kept(str(number)) for number in range(12)], 0.0
    for act, number, passed in acts:
        now += passed
        other, before = others[number], list(known.by_runtime.values())
        is_there = other in before
        match act:
            case "add" if not is_there:
                added = known.add(other, now)
                assert added or all(each.needed or each.link.epoch for each in before)
            case "use":
                other.used_at = now
            case "need" | "free" if is_there:
                other.needed = act == "need"
            case "talk" if is_there:
                other.link.epoch, other.used_at = "1", now
            case "signal" if is_there:
                known.signals(other, f"{number} at {now}")
            case "sweep":
                known.forget_unused(now)
                assert all(
                    each.needed or now - each.used_at < 600 for each in known.by_runtime.values()
                )
        for each in (each for each in others if each.is_gone):
            assert not each.needed and (not each.link.epoch or now - each.used_at >= 60)
            each.stubs.clear()
            each.link.epoch, each.is_gone = "", False
        here = list(known.by_runtime.values())
        assert len(here) <= TIMERS.peers
        assert list(known._by_via.values()) == here
        stubs = [stub for each in here for stub in each.stubs]
        assert sorted(known._by_stub) == sorted(stubs)
        assert all(len(each.stubs) <= TIMERS.keep_epochs + 1 for each in here)


def remotes_in_memory() -> int:
    gc.collect()
    return sum(type(each) is RemoteRuntime for each in gc.get_objects())


def tell(talker: Talker, number: int) -> None:
    """Say something to a runtime that is not there, and want a channel."""
    other = f"runtime://d/other-{number}"
    body = {"p2p": True, "p2pHandler": f"{other}/p2phandler/1"}
    head = {"type": "update", "from": talker.app, "to": f"{other}/app"}
    talker.bus.post_message({**head, "body": body})


@pytest.mark.parametrize("is_needed", [False, True])
def test_a_thousand_come_and_go_and_nothing_is_left_but_of_those_that_are_needed(
    is_needed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Net()
    monkeypatch.setattr(set_up, "RtcConnection", partial(FakeConnection, net))
    if is_needed:
        monkeypatch.setattr(RemoteRuntime, "is_needed", lambda remote: True)
    before = remotes_in_memory()

    async def run() -> None:
        talker = Talker(net, timers={"peers": 50})
        for number in range(1_000):
            tell(talker, number)
            if number % 40 == 39:
                await asyncio.sleep(NOW)
        await asyncio.sleep(NOW)
        assert len(talker.p2p.known) == 50
        assert (f"runtime://d/other-{0 if is_needed else 999}") in talker.p2p.known
        assert talker.bus.counters["p2p.too-many-peers"] == (950 if is_needed else 0)
        assert len([each for each in net.seen if each["type"] == "update"]) == 1_000
        assert remotes_in_memory() - before <= 50
        assert len(talker.bus._listeners) <= 54 and len(net.claimed) <= 51
        assert not talker.p2p._set_ups._objects and not talker.p2p._set_ups._awaiting
        talker.p2p._known.forget_unused(asyncio.get_running_loop().time() + 601)
        await asyncio.sleep(NOW)
        assert bool(talker.p2p.known) is is_needed and bool(net.claimed) is is_needed
        await talker.p2p.close()

    with asyncio.Runner(loop_factory=FakeLoop) as runner:
        runner.run(run())
