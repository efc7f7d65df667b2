"""Who a response is handed to, in one worker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from msgnode.bus.ports import DeliveryResult, Response
from msgnode.bus.response_guard import MAX_VOUCHED, ResponseGuard
from msgnode.bus.table import RoutingTable
from msgnode.core.record import Outcome
from tests.fakes import FakeCaller, FakeRecorder, FakeSession, pipeline


class Scene:
    """Alice, Bob and Eve at one worker."""

    def __init__(self, is_strict: bool = True) -> None:
        self.table, self.recorder = RoutingTable(), FakeRecorder()
        self.alice, self.bob, self.eve = (
            FakeSession(f"runtime://localhost/{name}", f"token-{name}")
            for name in ("alice", "bob", "eve")
        )
        for each in (self.alice, self.bob, self.eve):
            self.table.add_runtime(each)
        self.pipeline = pipeline(self.table, recorder=self.recorder, is_strict=is_strict)

    def say(self, session: FakeSession, type_: str, to: Any, id_: Any = 1, **more: Any) -> None:
        frame = {"id": id_, "type": type_, "from": session.runtime_url, "to": to,
                 "body": {"code": 200}, **more}  # fmt: skip
        self.pipeline.carry(json.dumps(frame).encode(), FakeCaller(session))

    def heard(self, session: FakeSession) -> list[str]:
        return [f"{each['type']} of {each['from']}" for each in session.messages]


def test_a_response_of_who_was_not_asked_is_refused_and_counted() -> None:
    scene = Scene()
    scene.say(scene.alice, "read", scene.bob.runtime_url)
    scene.say(scene.eve, "response", scene.alice.runtime_url)
    scene.say(scene.bob, "response", scene.alice.runtime_url)
    assert scene.heard(scene.alice) == [f"response of {scene.bob.runtime_url}"]
    assert [each.outcome for each in scene.recorder.rows][1:] == [
        Outcome.REFUSED, Outcome.DELIVERED
    ]  # fmt: skip
    assert scene.recorder.rows[1].code == 403


def test_without_strictness_every_response_passes() -> None:
    scene = Scene(is_strict=False)
    scene.say(scene.eve, "response", scene.alice.runtime_url)
    assert scene.heard(scene.alice) == [f"response of {scene.eve.runtime_url}"]


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_sessions_of_a_runtime_the_one_that_asked_gets_the_response(order: int) -> None:
    scene = Scene()
    tab = FakeSession(scene.alice.runtime_url, "token-tab")
    scene.table.add_runtime(tab)
    asking = [(scene.alice, scene.bob), (tab, scene.eve)][::order]
    for asks, asked in asking:
        scene.say(asks, "read", asked.runtime_url)
    for asks, asked in asking:
        scene.say(asked, "response", asks.runtime_url)
    for asks, asked in asking:
        assert scene.heard(asks) == [f"response of {asked.runtime_url}"]


def test_every_listener_of_an_address_may_answer_and_nobody_else() -> None:
    scene = Scene()
    to = "comm://localhost/1/children/chat"
    for each in (scene.bob, scene.eve):
        scene.table.subscribe(to, each)
    scene.say(scene.alice, "create", to)
    scene.table.unsubscribe(to, scene.bob)  # he was asked all the same
    late = FakeSession("runtime://localhost/late")
    scene.table.add_runtime(late)
    scene.table.subscribe(to, late)
    for each in (scene.bob, scene.eve, late):
        scene.say(each, "response", scene.alice.runtime_url)
    assert len(scene.heard(scene.alice)) == 2


@pytest.mark.parametrize(
    ("asked", "answered", "is_same"),
    [(1, "1", True), (1.0, 1, True), ("a\u00e9", "aé", True), (1, 2, False), (True, "true", True)]
    + [(1.5, 1.5, True), (-1, -1, True), ("a", "b", False), ("", "", True)],
)
def test_ids_are_compared_by_value(asked: Any, answered: Any, is_same: bool) -> None:
    scene = Scene()
    scene.say(scene.alice, "read", scene.bob.runtime_url, id_=asked)
    scene.say(scene.bob, "response", scene.alice.runtime_url, id_=answered)
    assert len(scene.heard(scene.alice)) == is_same


def test_a_response_from_another_worker_reaches_the_tab_that_asked_and_no_other() -> None:
    scene = Scene()
    guard = ResponseGuard(scene.table, True, lambda _: None)
    asking, tab = scene.alice, FakeSession(scene.alice.runtime_url)
    scene.table.add_runtime(tab)
    asking.ask(asking.runtime_url, b"7", "bob", 0.0)
    response = Response(asking.runtime_url, "7", "bob")
    assert guard.respond(tab, b"real", response, 1.0) is DeliveryResult.WRITTEN
    assert (asking.frames, tab.frames, guard.dropped) == ([b"real"], [], 0)
    for made_up in (response._replace(responder="eve"), response._replace(id="8")):
        assert guard.respond(asking, b"forged", made_up, 1.0) is None
    assert (asking.frames, tab.frames, guard.dropped) == ([b"real"], [], 2)


def test_a_response_that_somebody_vouches_for_passes_once_wherever_it_goes() -> None:
    """As of a request that was stored for hours, by a session of another worker."""
    scene = Scene()
    scene.alice.is_here = False
    elsewhere: list[Response] = []
    scene.alice.deliver_response = lambda frame, response: elsewhere.append(response)  # type: ignore[assignment,func-returns-value,return-value]
    response = Response(scene.alice.runtime_url, "1", scene.bob.id)
    scene.pipeline._guard.vouch(response)
    scene.say(scene.eve, "response", scene.alice.runtime_url)
    scene.say(scene.bob, "response", scene.alice.runtime_url)
    scene.say(scene.bob, "response", scene.alice.runtime_url)
    assert scene.heard(scene.alice) == [f"response of {scene.bob.runtime_url}"]
    assert elsewhere == [response._replace(responder=scene.eve.id), response], "to be judged there"


def test_no_more_is_vouched_for_than_may() -> None:
    guard = ResponseGuard(RoutingTable(), True, lambda _: None)
    for number in range(MAX_VOUCHED + 5):
        guard.vouch(Response("a", str(number), "b"))
    assert len(guard._vouched) == MAX_VOUCHED
    assert Response("a", "4", "b") not in guard._vouched
