"""What the record says of a message, whatever became of it, and what its sender was told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from msgnode.bus.pipeline import COPIES_AS_ONE
from msgnode.bus.ports import DeliveryResult
from msgnode.core.decision import Decision, Direction, Effect
from msgnode.core.identity import Identity, Speaker
from msgnode.core.messages import Message
from msgnode.core.pending import Pending
from msgnode.core.record import Outcome
from tests.fakes import (
    FakeComponent,
    FakeEnforcer,
    FakeSession,
    FakeSessionHandler,
)
from tests.stage.bus import ONE, TWO, Scene

GROUP = "comm://localhost/1"
PERMIT = Decision(Effect.PERMIT, passes=True, auth=True, deciding=("set", "policy", "rule"))


def test_a_delivered_message_is_noted_whole_and_shown_to_who_watches() -> None:
    scene = Scene(enforcer=FakeEnforcer(**{"in": PERMIT}))
    scene.caller.speaker = scene.sender.speaker = Speaker(
        "s1", ONE, identity=Identity("https://issuer", "alice")
    )
    size = scene.say(body={"value": 1})
    row = scene.row()
    assert (row.session, row.runtime, row.id, row.type, row.sender, row.to) == (
        "s1", ONE, "1", "create", ONE, TWO
    )  # fmt: skip
    assert (row.size, row.listeners, row.outcome, row.code) == (size, 1, Outcome.DELIVERED, 0)
    assert (row.component, row.effect, row.rule, row.asserted) == ("", "permit", "rule", True)
    assert row.latency >= 0
    assert [record for record, _ in scene.tapped] == [row]
    assert json.loads(scene.tapped[0][1]) == {"value": 1}


@pytest.mark.parametrize(("auth_in", "auth_out"), [(0, 0), (0, 1), (1, 1), (1, 0)])
def test_the_decision_noted_is_the_last_unless_only_the_first_authorised(
    auth_in: int, auth_out: int
) -> None:
    decisions = {
        name: Decision(Effect.PERMIT, passes=True, auth=bool(auth), deciding=("s", "p", name))
        for name, auth in (("in", auth_in), ("out", auth_out))
    }
    scene = Scene(enforcer=FakeEnforcer(**decisions))
    scene.say()
    assert scene.row().rule == ("in" if auth_in and not auth_out else "out")


def test_what_a_component_answers_is_noted_under_its_name() -> None:
    scene = Scene(FakeComponent({"code": 200}, "domain://fake.localhost"))
    scene.say(to="domain://fake.localhost")
    row = scene.row()
    assert (row.outcome, row.component, row.code) == (Outcome.ANSWERED, "fake", 200)
    assert (row.listeners, row.effect, row.rule) == (0, "notApplicable", "")


def test_what_the_session_component_is_told_is_noted_as_its_business() -> None:
    handler = FakeSessionHandler()
    scene = Scene(session_handler=handler, enforcer=FakeEnforcer(**{"in": PERMIT}))
    scene.say("open", "mn:/session")
    assert handler.handled == ["open"]
    row = scene.row()
    assert (row.outcome, row.component, row.to) == (Outcome.ANSWERED, "session", "mn:/session")
    assert (row.session, row.rule) == (scene.sender.id, "rule")


class Fails:
    """Breaks on whatever it is given."""

    is_idle = False

    def __init__(self, direction: Direction) -> None:
        self.direction = direction

    def enforce(self, message: Message, speaker: Speaker, direction: Direction) -> Decision:
        if direction is self.direction:
            raise RuntimeError("broken")
        return PERMIT


@pytest.mark.parametrize("to", [TWO, [TWO, ONE]])
@pytest.mark.parametrize("direction", [Direction.IN, Direction.OUT])
def test_a_fault_of_the_node_is_answered_500_and_noted(
    to: Any, direction: Direction, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(enforcer=Fails(direction))
    scene.say(to=to)
    assert caplog.records
    for line in caplog.records:
        assert line.exc_info is not None
        assert str(line.exc_info[1]) == "broken"
    assert [each["body"]["code"] for each in scene.caller.answers] == [500] * len(
        scene.recorder.rows
    )
    for row, answer in zip(scene.recorder.rows, scene.caller.answers, strict=True):
        assert row.code == 500
        assert row.outcome is not Outcome.DELIVERED
        assert answer["from"] == row.to
    assert scene.target.frames == []


def test_what_no_decision_can_be_made_on_yet_is_held_as_it_came() -> None:
    fact = Pending("A fact", lambda then: None)
    held: list[tuple[bytes, Pending]] = []

    class Waits(FakeEnforcer):
        def enforce(self, message: Message, speaker: Speaker, direction: Direction) -> Decision:
            raise fact

    scene = Scene(enforcer=Waits())
    scene.caller.hold = lambda frame, why: held.append((frame, why))  # type: ignore[attr-defined]
    scene.say()
    ((frame, why),) = held
    assert (json.loads(frame)["to"], why) == (TWO, fact)
    assert scene.recorder.rows == []
    assert scene.caller.frames == []


@pytest.mark.parametrize("number", [1, 2, 3])
def test_full_queues_are_answered_503_and_an_event_is_not(number: int) -> None:
    scene = Scene()
    for each in range(number):
        listener = FakeSession(f"{TWO}{each}")
        listener.taken = DeliveryResult.DROPPED
        scene.table.subscribe(f"{GROUP}/changes", listener)
        scene.table.subscribe(GROUP, listener)
    scene.say(to=GROUP)
    assert scene.answer() == (503, GROUP)
    (answer,) = scene.caller.answers
    assert "its queue is full" in answer["body"]["description"]
    assert (scene.row().outcome, scene.row().code) == (Outcome.DROPPED, 503)
    scene.say("update", f"{GROUP}/changes")
    assert len(scene.caller.frames) == 1
    assert (scene.recorder.rows[1].outcome, scene.recorder.rows[1].code) == (Outcome.DROPPED, 0)


def test_a_large_fan_out_is_noted_with_how_many_heard() -> None:
    scene = Scene()
    listeners = [FakeSession(f"{TWO}{each}") for each in range(300)]
    for listener in listeners:
        scene.table.subscribe(GROUP, listener)
    scene.say(to=GROUP)
    row = scene.row()
    assert (row.outcome, row.code, row.listeners) == (Outcome.DELIVERED, 0, 300)
    assert all(len(listener.frames) == 1 for listener in listeners)
    assert scene.caller.frames == []


def test_bytes_beyond_the_first_copy_are_charged_to_who_sends() -> None:
    scene = Scene()
    scene.say()
    assert scene.caller.charged == []
    for each in range(3):
        scene.table.subscribe(GROUP, FakeSession(f"{TWO}{each}"))
    scene.say(to=GROUP)
    ((messages, size),) = scene.caller.charged
    copy = scene.table.listeners(GROUP)[0].frames[0]  # type: ignore[attr-defined]
    assert (messages, size) == (0, 2 * len(copy) // COPIES_AS_ONE)


def bounced(scene: Scene, type_: str = "create", to: str = GROUP, sender: str = TWO) -> Any:
    frame = {"id": "x", "type": type_, "from": sender, "to": to, "body": {}}
    scene.bounces.bounce(json.dumps(frame).encode())
    return [(each["to"], each["from"], each["body"]["code"]) for each in scene.target.messages]


def test_a_frame_that_came_too_late_is_answered_404_to_its_sender() -> None:
    scene = Scene()
    assert bounced(scene) == [(TWO, GROUP, 404)]
    (answer,) = scene.target.messages
    assert (answer["type"], answer["id"]) == ("response", "x")
    assert answer["body"]["description"] == f"Nobody listens to {GROUP}."


@pytest.mark.parametrize(
    ("type_", "to", "sender"),
    [
        ("response", GROUP, TWO),
        ("update", f"{GROUP}/changes", TWO),
        ("create", GROUP, "runtime://localhost/gone"),
    ],
)
def test_nobody_is_told_of_what_expects_no_answer_or_came_from_nobody(
    type_: str, to: str, sender: str
) -> None:
    assert bounced(Scene(), type_, to, sender) == []


def test_a_frame_of_another_worker_that_is_no_message_is_passed_over() -> None:
    scene = Scene()
    scene.bounces.bounce(b"{")
    assert scene.target.frames == scene.caller.frames == []
