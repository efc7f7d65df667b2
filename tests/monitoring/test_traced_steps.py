"""A message that is traced goes the way of all others, and each of its steps is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from msgnode.bus.ports import DeliveryResult, Response
from msgnode.bus.return_paths import ReturnPath
from msgnode.bus.steps import MOST_HELD
from msgnode.core.decision import Decision, Effect
from msgnode.core.errors import Conflict, Forbidden
from msgnode.monitoring import tracer as tracing
from tests.fakes import FakeCaller, FakeComponent, FakeSession, FakeSessionHandler
from tests.stage.bus import (
    COMPONENT,
    ONE,
    TWO,
    Admission,
    Caller,
    Component,
    Ear,
    Policies,
    Scene,
    Waits,
)

from .test_tracer import ALL, DENY, facts, names, parts, tracer_of

GROUP = "comm://localhost/1"
PERMIT = Decision(Effect.PERMIT, True, True, ("set", "policy", "rule"))


def listeners(scene: Scene, number: int, taken: DeliveryResult = DeliveryResult.WRITTEN) -> None:
    for each in range(number):
        listener = FakeSession(f"{TWO}/{each}")
        listener.taken = taken
        scene.table.subscribe(GROUP, listener)


def to_a_group(number: int, taken: DeliveryResult) -> Callable[[Scene], Any]:
    def act(scene: Scene) -> None:
        listeners(scene, number, taken)
        scene.say(to=GROUP)

    return act


def behind(scene: Scene) -> None:
    scene.target.taken = DeliveryResult.BEHIND
    scene.say()


def unknown(scene: Scene) -> None:
    scene.caller = Caller(None)
    scene.say()


def seen(act: Callable[[Scene], Any], is_traced: bool, **parts_: Callable[[], Any]) -> Any:
    """All that one scene shows of what is done there, with neither times nor random ids."""
    made = {name: make() for name, make in parts_.items()}
    components = made.pop("components", ())
    scene = Scene(*components, **made)
    scene.caller = caller = Caller(scene.sender)
    tracer = tracer_of(scene)
    if is_traced:
        tracer.ask(ALL)
    act(scene)
    if is_traced:
        assert parts(tracer), "it is told once it is over"
    ids = {scene.sender.id: "sender", scene.target.id: "target"}
    rows = [
        {
            name: ids.get(value, value)
            for name, value in msgspec.structs.asdict(row).items()
            if name not in ("at", "latency")
        }
        for row in scene.recorder.rows
    ]
    return {
        "rows": rows,
        "answers": scene.caller.answers,
        "frames": scene.target.frames,
        "charged": caller.charged,
        "waited for": caller.waited_for,
        "asked": [each.asked for each in made.values() if hasattr(each, "asked")],
        "component's callers": [ids.get(each.id) for one in components for each in one.callers],
    }


def _answering(answer: Any = None) -> list[Component]:
    return [Component({"code": 200} if answer is None else answer)]


@pytest.mark.parametrize(
    ("act", "parts_"),
    [
        (lambda scene: scene.say(body={"value": 1}), {}),
        (lambda scene: scene.say(), {"enforcer": lambda: Policies({"in": PERMIT})}),
        (lambda scene: scene.say(), {"enforcer": lambda: Policies({"in": DENY})}),
        (lambda scene: scene.say(), {"enforcer": lambda: Policies({"out": DENY})}),
        (lambda scene: scene.say(), {"authorizer": lambda: Admission()}),
        (lambda scene: scene.say(), {"authorizer": lambda: Admission(Forbidden("Not you."))}),
        (lambda scene: scene.say(), {"authorizer": lambda: Admission(RuntimeError("broken"))}),
        (lambda scene: scene.say(to=[TWO, "hyperty://localhost/nobody"]), {}),
        (lambda scene: scene.say(to="hyperty://localhost/nobody"), {}),
        (lambda scene: scene.say("response", to=COMPONENT), {"components": _answering}),
        (lambda scene: scene.say(to=COMPONENT), {"components": _answering}),
        (
            lambda scene: scene.say(to=COMPONENT),
            {"components": lambda: _answering(Conflict("No."))},
        ),
        (lambda scene: scene.say("open", "mn:/session"), {"authorizer": lambda: Admission()}),
        (
            lambda scene: scene.say("open", "mn:/session"),
            {"authorizer": lambda: Admission(Forbidden("Not you."))},
        ),
        (
            lambda scene: scene.say("open", "mn:/session"),
            {"enforcer": lambda: Policies({"in": DENY}), "session_handler": FakeSessionHandler},
        ),
        (behind, {}),
        (unknown, {}),
        (to_a_group(3, DeliveryResult.WRITTEN), {}),
        (to_a_group(3, DeliveryResult.DROPPED), {}),
        (to_a_group(300, DeliveryResult.WRITTEN), {}),
        (to_a_group(300, DeliveryResult.DROPPED), {}),
    ],
)
async def test_what_is_traced_fares_as_what_is_not(act: Any, parts_: Any) -> None:
    assert seen(act, True, **parts_) == seen(act, False, **parts_)


def watched(*components: Any, **parts_: Any) -> tuple[Scene, Any]:
    scene = Scene(*components, **parts_)
    tracer = tracer_of(scene)
    tracer.ask(ALL)
    return scene, tracer


@pytest.mark.parametrize("to", [TWO, "mn:/session"])
async def test_a_refused_admission_says_why(to: str) -> None:
    scene, tracer = watched(authorizer=Admission(Forbidden("Not you.")))
    scene.say(to=to)
    (part,) = parts(tracer)
    (span,) = [span for span in part["spans"] if span["name"] == "admission"]
    assert span["is_error"] is True
    assert span["facts"] == {"code": 403, "why": "Not you."}
    assert 0 <= span["seconds"] < 5


@pytest.mark.parametrize(
    ("decisions", "errors"),
    [({}, [False, False]), ({"in": DENY}, [True]), ({"out": DENY}, [False, True])],
)
async def test_a_policy_that_refuses_is_the_step_that_failed(
    decisions: dict[str, Decision], errors: list[bool]
) -> None:
    scene, tracer = watched(enforcer=Policies(decisions))
    scene.say()
    (part,) = parts(tracer)
    told = [span["is_error"] for span in part["spans"] if span["name"].startswith("policies")]
    assert told == errors


async def test_a_policy_that_rewrites_says_so() -> None:
    rewritten = Decision(Effect.PERMIT, True, True, ("rule",), body=b'{"value":2}')
    scene, tracer = watched(enforcer=Policies({"in": rewritten}))
    scene.say(body={"value": 1})
    (part,) = parts(tracer)
    assert facts(part, "policies in")[0]["rewritten"] is True
    assert "rewritten" not in facts(part, "policies out")[0]


@pytest.mark.parametrize("number", [1, 2, 300])
async def test_the_way_back_goes_beside_a_traced_request(number: int) -> None:
    scene, _ = watched()
    scene.table.add_runtime(FakeSession(ONE))  # a second tab: an answer must find the first
    ears = [Ear(f"{TWO}/{each}", is_here=False) for each in range(number)]
    for ear in ears:
        scene.table.subscribe(GROUP, ear)
    scene.say(to=GROUP)
    way = ReturnPath(ONE, "1", scene.sender.id, ONE)
    assert [ear.beside for ear in ears[:50]] == [[way]] * min(number, 50)
    assert [len(ear.frames) for ear in ears] == [1] * number


async def test_whose_response_it_is_goes_beside_a_traced_response() -> None:
    scene, tracer = watched()
    asker = Ear("runtime://localhost/3")
    scene.table.add_runtime(asker)
    frame = {"id": 5, "type": "read", "from": asker.runtime_url, "to": ONE, "body": {}}
    scene.pipeline.carry(json.dumps(frame).encode(), FakeCaller(asker))
    scene.say("response", asker.runtime_url, id=5, body={"code": 200})
    assert len(asker.frames) == 1
    assert [names(part)[-1] for part in parts(tracer)] == ["deliver", "deliver"]
    assert all(each is None or isinstance(each, Response) for each in asker.beside)


class Later(FakeCaller):
    """Takes its turns when it is told to."""

    def __init__(self, session: FakeSession) -> None:
        super().__init__(session)
        self.rest: list[Iterator[None]] = []

    def carry_on(self, rest: Iterator[None]) -> None:
        self.rest.append(rest)

    def turn(self) -> bool:
        return next(self.rest[0], self) is None


async def test_a_trace_is_told_once_its_last_turn_is_over() -> None:
    scene, tracer = watched()
    scene.caller = later = Later(scene.sender)
    scene.say(to=[TWO, ONE])
    assert parts(tracer) == []
    while later.turn():
        assert parts(tracer) == []
    (part,) = parts(tracer)
    assert names(part).count("deliver") == 2


@pytest.mark.parametrize("does", ["a message", "a turn"])
async def test_what_is_carried_meanwhile_is_a_trace_of_its_own(does: str) -> None:
    scenes: list[Scene] = []
    others: list[Later] = []

    def answer() -> dict[str, Any]:
        if does == "a turn":
            others[0].turn()
        else:
            say(FakeCaller(scenes[0].sender))
        return {"code": 200}

    def say(caller: FakeCaller) -> None:
        frame = {"id": 2, "type": "read", "from": ONE, "to": [TWO, ONE], "body": {}}
        scenes[0].pipeline.carry(json.dumps(frame).encode(), caller)

    scene, tracer = watched(FakeComponent(answer, COMPONENT))
    scenes.append(scene)
    others.append(Later(scene.sender))
    if does == "a turn":
        say(others[0])
    scene.say(to=COMPONENT)
    while does == "a turn" and others[0].turn():
        pass
    told = {part["type"]: part for part in parts(tracer)}
    assert (told["create"]["outcome"], told["create"]["code"]) == ("answered", 200)
    assert names(told["create"])[-1] == "answer"
    assert told["read"]["outcome"] == "delivered"
    assert names(told["read"]).count("deliver") == 2


async def test_an_answer_is_in_the_trace_of_its_question_alone() -> None:
    answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
    scene, tracer = watched(FakeComponent(lambda: answer, COMPONENT))
    scene.say("response", to=COMPONENT)  # is never answered, and over at once
    scene.say(to=COMPONENT)
    assert [part["type"] for part in parts(tracer)] == ["response"]
    answer.set_result({"code": 200})
    await asyncio.wait_for(scene.caller.answered.wait(), 30)
    assert [part["type"] for part in parts(tracer)] == ["response", "create"]


@pytest.mark.parametrize("to", [TWO, "mn:/session"])
async def test_a_message_that_waited_says_for_what_and_another_goes_its_way(to: str) -> None:
    scene, tracer = watched(lease=Waits())
    scene.say(to=to, id=1)
    scene.say(to=to, id=2)
    assert [part["id"] for part in parts(tracer)] == ["2"]
    (frame,) = scene.caller.held
    assert json.loads(frame)["id"] == 1
    scene.pipeline.carry(frame, scene.caller)
    part = parts(tracer)[-1]
    assert part["id"] == "1"
    assert facts(part, "wait") == [{"fact": "Pending"}]
    told = [each for each in facts(part, "admission") if each]
    assert told == ([{"speaker": "not identified"}] if to == TWO else [])
    assert len(scene.recorder.rows) == 2


async def test_of_too_many_that_wait_the_oldest_is_told_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracing, "MOST_A_SECOND", 2 * MOST_HELD)
    scene, tracer = watched(lease=Waits(MOST_HELD + 1))
    for number in range(MOST_HELD):
        scene.say(id=number)
    assert parts(tracer) == []
    scene.say(id="last")
    assert [part["id"] for part in parts(tracer)] == ["0"]
