"""docs/message-path.md is the path a frame takes: the calls of a real one are compared with it."""

from __future__ import annotations

import re
import sys
from types import CodeType, FrameType
from typing import NamedTuple

import pytest

from msgnode.node import Node
from tests.node import ROOT
from tests.stage.worker import Runtime

PAGE = (ROOT / "docs" / "message-path.md").read_text(encoding="utf-8")
STEPS = re.findall(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", PAGE, re.MULTILINE)
OURS = re.compile(rf"{re.escape(str(ROOT))}/((?:msgnode|policies|registry|spark)/[\w/]+\.py)")
SM = "domain://msg-node.localhost/sm"


class Call(NamedTuple):
    file: str
    function: str


@pytest.mark.django_db(transaction=True)
async def test_a_frame_takes_the_documented_path() -> None:
    node = Node()
    await node.start()
    try:
        alice, bob = await Runtime(node).open(), await Runtime(node).open()
        hyperties = [f"hyperty://localhost/{name}" for name in ("alice", "bob")]
        for each, own in zip((alice, bob), hyperties, strict=True):
            answer = await each.ask("subscribe", SM, {"resources": [own]}, f"{each.url}/sm")
            assert answer["code"] == 200
        alice.say("create", hyperties[1], {"value": "the first fills caches"}, hyperties[0])
        before = len(bob.link.frames)
        calls = recorded(alice, *hyperties)
        assert len(bob.link.frames) == before + 1
        for each in (alice, bob):
            each.connection.lost()
    finally:
        await node.stop()
    compare(calls)


def recorded(runtime: Runtime, sender: str, to: str) -> list[Call]:
    """The calls of our own functions while a node takes one frame."""
    codes: list[CodeType] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            codes.append(frame.f_code)

    sys.setprofile(note)
    try:
        runtime.say("create", to, {"value": "hello"}, sender)
    finally:
        sys.setprofile(None)
    return [
        Call(found[1], code.co_qualname)
        for code in codes
        if (found := OURS.fullmatch(code.co_filename))
    ]


def compare(calls: list[Call]) -> None:
    rest = iter(calls)
    for step in STEPS:
        assert any(call == step for call in rest), f"{step} is not called there:\n{_listed(calls)}"
    assert {call.file for call in calls} == {file for file, _ in STEPS}
    most = re.search(r"\*\*(\d+) calls in (\d+) files\*\*", PAGE)
    assert most
    assert len(calls) <= int(most[1]), _listed(calls)
    assert len({call.file for call in calls}) == int(most[2])


def _listed(calls: list[Call]) -> str:
    return "\n".join(f"{call.file} {call.function}" for call in calls)
