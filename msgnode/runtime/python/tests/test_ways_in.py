"""Who may say what to a runtime, for every way in: the cases of ways-in.json, as in JavaScript.

stub       of the domain f
node       the home domain's stub
channel    to the runtime runtime://f/2, which has hyperty://f/x
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bus_harness import turn, until
from p2p_runtimes import FakeConnection, Net, Talker

from msgnode.runtime.python.message_bus import MessageBus
from msgnode.runtime.python.messages import Message
from msgnode.runtime.python.p2p import set_up
from msgnode.runtime.python.resolver import Resolver
from msgnode.runtime.python.settings import Settings

CASES = json.loads((Path(__file__).parents[2] / "js/tests/ways-in.json").read_text())
R, A, FAR, OTHER, ID = "runtime://d/1", "hyperty://d/a", "hyperty://f/x", "hyperty://g/y", "77"
HEARD_AT = (
    A,
    f"{R}/status",
    f"hyperty-{R}/status",
    "runtime://g/protostub/1/status",
    "comm://f/room/children/",
)


def cases(way: str) -> list[Any]:
    return [
        pytest.param(each, id=f"{each['name']} is {each['then'][way]}")
        for each in CASES
        if way in each["then"]
    ]


def scene(bus: MessageBus, case: dict[str, Any], node: str) -> tuple[list[Message], Message]:
    """What listeners here hear of what a case brings, and that; the application has asked first."""
    said: list[Message] = []

    def hear(message: Message) -> None:
        if message["body"].get("value") == "said":
            said.append(message)

    bus.add_listener("hyperty://d/silent", lambda message: None)
    for each in HEARD_AT:
        bus.add_listener(each, hear)
    head: Message = {"from": A, "body": {}}
    if subscribed := case.get("subscribed"):
        body = {"resources": [subscribed]}
        bus.post_message({**head, "id": 1, "type": "subscribe", "to": node, "body": body})
    if asked := case.get("asked"):
        bus.post_message({**head, "id": ID, "type": "create", "to": asked})
    return said, {"id": ID, "to": A, "body": {"value": "said"}, **case["brings"]}


def judge(case: dict[str, Any], way: str, said: list[Message], is_told: bool, via: str) -> None:
    outcome = "heard" if said else "refused" if is_told else "dropped"
    assert outcome == case["then"][way]
    if said:
        assert len(said) == (2 if case.get("isAgain") else 1)
        marks = case.get("marks", {}) if way == "node" else {}
        assert said[0]["body"] == {**case.get("body", {"value": "said"}), **marks, "via": via}


def is_refusal(message: Message) -> bool:
    return message.get("id") == ID and message.get("body", {}).get("code") == 403


class Stub:
    """A stub in this process: what it was handed, and how it brings something in."""

    is_ended = False

    def __init__(self, url: str, bring: Callable[[Any], None]) -> None:
        self.url = url
        self.bring = bring
        self.sent: list[Message] = []

    def post(self, message: Message) -> bool:
        self.sent.append(message)
        return True

    async def connect(self, identity: Any = None) -> None:
        """It needs no connection."""

    async def stop(self) -> None:
        """Nor has it one to end."""


class Stubs:
    """A loader of such stubs, by domain."""

    def __init__(self) -> None:
        self.started: dict[str, Stub] = {}

    async def fetch(self, domain: str, kind: str) -> tuple[SimpleNamespace, str]:
        return SimpleNamespace(domain=domain, configuration={}), ""

    async def start(self, url: str, found: Any, source: str, bring: Any, ended: Any) -> Stub:
        self.started[found.domain] = Stub(url, bring)
        return self.started[found.domain]

    async def close(self) -> None:
        """Nothing is left of them."""


async def run_with_a_stub(case: dict[str, Any], way: str) -> None:
    bus, stubs = MessageBus(R), Stubs()
    resolver = Resolver(Settings("d"), bus, stubs)  # type: ignore[arg-type]
    for to in ("hyperty://d/elsewhere", "hyperty://f/elsewhere", OTHER):
        bus.post_message({"type": "update", "from": A, "to": to})
    await until(lambda: [each.status for each in resolver.stubs] == ["deployed"] * 3)
    domain = "d" if way == "node" else "f"
    stub = stubs.started[domain]
    said, message = scene(bus, case, f"domain://msg-node.{domain}/sm")
    await turn()
    for _ in range(2 if case.get("isAgain") else 1):
        stub.bring(json.loads(json.dumps(message)))
    await turn()
    judge(case, way, said, any(map(is_refusal, stub.sent)), stub.url)
    await resolver.close()


@pytest.mark.parametrize("case", cases("stub"))
async def test_r43_r74_a_foreign_stub_speaks_for_its_domain_and_answers_what_it_was_asked(
    case: dict[str, Any],
) -> None:
    await run_with_a_stub(case, "stub")


@pytest.mark.parametrize("case", cases("node"))
async def test_the_home_domains_stub_brings_whatever_its_node_has_judged(
    case: dict[str, Any],
) -> None:
    await run_with_a_stub(case, "node")


@pytest.mark.parametrize("case", cases("channel"))
async def test_p48_p49_a_channel_speaks_for_the_runtime_at_its_other_end(
    monkeypatch: pytest.MonkeyPatch, case: dict[str, Any]
) -> None:
    net = Net()
    monkeypatch.setattr(set_up, "RtcConnection", partial(FakeConnection, net))
    victim, liar = Talker(net, url=R), Talker(net, url="runtime://f/2")
    net.registered[FAR] = {"runtime": liar.url, **liar.p2p.registration}
    liar.bus.add_listener(FAR, lambda message: None)
    await victim.want(liar, 0)
    await until(lambda: victim.way_to(liar) == liar.way_to(victim) == "channel")
    named = {"p2p": True, "p2pHandler": liar.p2p.handler}
    victim.bus.post_message({"type": "update", "from": A, "to": FAR, "body": named})
    await turn()  # what follows takes the channel
    said, message = scene(victim.bus, case, "domain://msg-node.d/sm")
    for _ in range(20):
        await turn()
    sent: list[Any] = []
    rtc: Any = victim.remote(liar)._rtc
    send = rtc.send

    def send_and_note(frame: Any) -> None:
        sent.append(frame)
        send(frame)

    rtc.send = send_and_note
    for _ in range(2 if case.get("isAgain") else 1):
        liar.remote(victim).link.send(message, 100, 0.0)
    for _ in range(20):
        await turn()
    is_told = any('"code":403' in frame for frame in sent)
    judge(case, "channel", said, is_told, victim.remote(liar).via)
    for talker in net.talkers:
        await talker.p2p.close()
