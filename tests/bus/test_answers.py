"""What components are asked, what is told of them, and what becomes of their answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from msgnode.bus.ports import Component as PlainComponent
from msgnode.bus.ports import NoPolicies
from msgnode.bus.replies import Replies
from msgnode.core import messages
from msgnode.core.decision import Decision, Direction, Effect
from msgnode.core.errors import Conflict
from msgnode.core.identity import Origin
from tests.fakes import FakeCaller, FakeSession
from tests.node import eventually
from tests.stage.bus import COMPONENT, Component, Policies

OK = {"code": 200, "value": 1}
SENDER = "hyperty://localhost/1"


def request(type_: str = "create") -> messages.Message:
    frame = {"id": 1, "type": type_, "from": SENDER, "to": COMPONENT, "body": {}}
    return messages.parse(json.dumps(frame).encode())


class Scene:
    """A component, who asks it, and what passes the policies on the way out."""

    def __init__(
        self, answer: Any, policies: Any = None, timeout: float = 5.0, **barriers: Any
    ) -> None:
        self.component = Component(answer)
        self.caller, self.session = FakeCaller(), FakeSession("runtime://localhost/1")
        self.replies = Replies(policies or NoPolicies(), timeout, **barriers)

    def ask(self, message: messages.Message | None = None) -> int:
        return self.replies.ask(self.component, message or request(), self.session, self.caller)

    @property
    def counts(self) -> tuple[int, int, str]:
        info = self.component.info
        return info.answered, info.failed, info.last_error


class Named(PlainComponent):
    """A component of its own name and kind."""

    name, kind = "calendar", "connector"

    def answer(self, message: Any, caller: Any) -> Any:
        return OK


def test_a_component_is_shown_to_the_operator_with_name_kind_and_address() -> None:
    info = Named(("domain://one.localhost", "domain://two.localhost")).info
    assert (info.name, info.kind, info.address) == (
        "calendar", "connector", "domain://one.localhost"
    )  # fmt: skip
    assert (info.state, info.answered, info.failed, info.last_error) == ("live", 0, 0, "")


async def test_an_answer_at_once_is_counted_and_given() -> None:
    scene = Scene(OK)
    assert [scene.ask(), scene.ask()] == [200, 200]
    assert scene.counts == (2, 0, "")
    assert scene.component.callers == [scene.session] * 2
    assert [each.type for each in scene.component.messages] == ["create"] * 2
    assert [each["body"] for each in scene.caller.answers] == [OK] * 2
    assert (scene.caller.answers[0]["to"], scene.caller.answers[0]["from"]) == (SENDER, COMPONENT)


async def test_an_answer_without_a_code_counts_as_200() -> None:
    assert Scene({"value": 1}).ask() == 200
    assert Scene({"code": 404}).ask() == 404


@pytest.mark.parametrize("tells_workers", [True, False])
async def test_an_answer_that_comes_later_has_no_code_yet(
    tells_workers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Component, "tells_workers", tells_workers)
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    scene = Scene(answer)
    assert (scene.ask(), scene.caller.pending) == (0, 1)
    answer.set_result(OK)
    await asyncio.wait_for(scene.caller.answered.wait(), 30)
    assert (scene.caller.pending, scene.counts) == (0, (1, 0, ""))


async def test_a_refusal_is_counted_with_its_reason() -> None:
    scene = Scene(Conflict("x" * 600))
    assert [scene.ask(), scene.ask()] == [409, 409]
    assert scene.counts == (0, 2, "x" * 500)
    assert scene.caller.answers[0]["body"]["code"] == 409


async def test_a_fault_is_counted_with_what_it_was_and_told_as_a_fault_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fault = RuntimeError("y" * 600)
    scene = Scene(fault)
    assert scene.ask() == 500
    (line,) = caplog.records
    assert line.exc_info is not None
    assert (line.exc_info[1], line.__dict__["component"]) == (fault, scene.component.name)
    answered, failed, error = scene.counts
    assert (answered, failed, len(error)) == (0, 1, 500)
    assert error.startswith("RuntimeError('yyy")
    assert "yyy" not in scene.caller.frames[0].decode()


async def test_an_answer_that_does_not_come_says_whose_it_was() -> None:
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    scene = Scene(answer, timeout=0.01)
    scene.ask()
    await asyncio.wait_for(scene.caller.answered.wait(), 30)
    body = scene.caller.answers[0]["body"]
    assert (body["code"], body["description"]) == (504, "fake did not answer in time.")
    answer.set_result(OK)
    while not scene.component.revoked:
        await eventually(0.001)
    assert scene.component.revoked_messages == [SENDER]
    assert scene.counts == (0, 1, "fake did not answer in time.")


async def test_an_answer_that_was_given_has_no_limit_any_more() -> None:
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    scene, other = Scene(answer, timeout=0.02), FakeCaller()
    scene.ask()
    answer.set_result(OK)
    await asyncio.wait_for(scene.caller.answered.wait(), 30)
    never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    scene.component._answer = never
    scene.replies.ask(scene.component, request(), scene.session, other)  # its limit is later
    await asyncio.wait_for(other.answered.wait(), 30)
    assert len(scene.caller.frames) == 1


class Watches(Policies):
    """Keeps who is said to speak."""

    def __init__(self, decision: Decision) -> None:
        super().__init__({"out": decision})
        self.speakers: list[Any] = []

    def enforce(self, message: Any, speaker: Any, direction: Direction) -> Decision:
        self.speakers.append(speaker)
        return super().enforce(message, speaker, direction)


@pytest.mark.parametrize(
    ("reason", "told"), [("", "Blocked by policy"), ("Not in working hours.",) * 2]
)
async def test_an_answer_that_a_policy_blocks_is_403_with_its_reason(
    reason: str, told: str
) -> None:
    policies = Watches(Decision(Effect.DENY, False, False, ("rule",), reason=reason))
    scene = Scene(OK, policies)
    assert scene.ask() == 403
    body = scene.caller.answers[0]["body"]
    assert (body["code"], body["description"]) == (403, told)
    assert policies.asked == [("response", "", Direction.OUT)]
    assert policies.speakers[0].origin is Origin.COMPONENT


@pytest.mark.parametrize("auth", [True, False])
@pytest.mark.parametrize("body", [None, b'{"code":200,"value":2}'])
async def test_an_answer_that_passes_the_policies_bears_their_mark(
    auth: bool, body: bytes | None
) -> None:
    policies = Watches(Decision(Effect.PERMIT, True, auth, ("rule",), body=body))
    scene = Scene(OK, policies)
    assert scene.ask() == 200
    (answer,) = scene.caller.answers
    assert (answer["to"], answer["from"], answer["id"]) == (SENDER, COMPONENT, 1)
    assert answer["body"] == {"code": 200, "value": 1 if body is None else 2, "auth": auth}
