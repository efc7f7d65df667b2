"""What a component says unasked passes the policies, is marked, delivered and recorded."""

from __future__ import annotations

import json
from time import time
from typing import Any

from msgnode.bus.notices import Notices
from msgnode.bus.ports import DeliveryResult
from msgnode.core.decision import Decision, Effect
from msgnode.core.identity import Origin
from msgnode.core.record import Outcome
from tests.fakes import FakeEnforcer, FakeRecorder, FakeSession
from tests.stage.bus import ONE, TWO

COMPONENT = "domain://registry.localhost"
PERMIT = Decision(Effect.PERMIT, passes=True, auth=True, body=b'{"changed": true}')
DENY = Decision(Effect.DENY, passes=False, auth=False)


def test_it_is_an_update_of_the_component_to_all_who_listen() -> None:
    recorder, enforcer = FakeRecorder(), FakeEnforcer()
    listeners = (FakeSession(ONE), FakeSession(TWO))
    notices = Notices(COMPONENT, "registry", enforcer, recorder)
    for number in (1, 2):
        notices.send(f"{ONE}/status", {"value": number}, listeners)
    for listener in listeners:
        first, second = (json.loads(frame) for frame in listener.frames)
        assert (first["type"], first["from"], first["to"]) == ("update", COMPONENT, f"{ONE}/status")
        assert [each["body"]["value"] for each in (first, second)] == [1, 2]
        assert first["id"] != second["id"]
    assert enforcer.asked == [("out", "update")] * 2
    row, _ = recorder.rows
    assert (row.type, row.sender, row.to, row.component) == (
        *("update", COMPONENT, f"{ONE}/status", "registry"),
    )
    assert (row.outcome, row.listeners, row.session, row.id) == (Outcome.DELIVERED, 2, "", "1")
    assert row.size > 0


def test_what_a_policy_changes_in_it_is_what_arrives() -> None:
    recorder, listener = FakeRecorder(), FakeSession(ONE)
    notices = Notices(COMPONENT, "registry", FakeEnforcer(out=PERMIT), recorder)
    notices.send(ONE, {"changed": False}, (listener,))
    body = json.loads(listener.frames[0])["body"]
    assert (body["changed"], body["auth"]) == (True, True)
    assert recorder.rows[0].effect is Effect.PERMIT


def test_what_a_policy_refuses_reaches_nobody_and_is_recorded() -> None:
    recorder, listener = FakeRecorder(), FakeSession(ONE)
    notices = Notices(COMPONENT, "registry", FakeEnforcer(out=DENY), recorder)
    notices.send(ONE, {"value": 1}, (listener,))
    assert listener.frames == []
    (row,) = recorder.rows
    assert (row.outcome, row.listeners, row.effect) == (Outcome.BLOCKED, 0, Effect.DENY)


def test_it_speaks_as_a_component_of_the_node_to_one_address_at_a_known_time() -> None:
    speakers: list[Any] = []

    class Watches(FakeEnforcer):
        def enforce(self, message: Any, speaker: Any, direction: Any) -> Decision:
            speakers.append(speaker)
            return super().enforce(message, speaker, direction)

    recorder, listener = FakeRecorder(), FakeSession(ONE)
    notices = Notices(COMPONENT, "registry", Watches(out=PERMIT), recorder)
    began = time()
    notices.send(f"{ONE}/status", {"changed": False}, (listener,))
    assert speakers[0].origin is Origin.COMPONENT
    assert json.loads(listener.frames[0])["to"] == f"{ONE}/status"
    assert began <= recorder.rows[0].at <= time()


def test_a_listener_that_is_behind_holds_nobody_back() -> None:
    recorder, listener = FakeRecorder(), FakeSession(ONE)
    listener.taken = DeliveryResult.BEHIND
    Notices(COMPONENT, "registry", FakeEnforcer(), recorder).send(ONE, {}, (listener,))
    assert recorder.rows[0].outcome is Outcome.DELIVERED
