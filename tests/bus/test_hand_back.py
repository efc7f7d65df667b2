"""How a response is handed back, case by case."""

from __future__ import annotations

import json
from typing import Any

from msgnode.bus.ports import Response
from msgnode.bus.response_guard import ResponseGuard
from msgnode.bus.table import RoutingTable
from msgnode.core import messages
from msgnode.core.record import Outcome
from tests.fakes import FakeCaller, FakeSession

ASKER, RESPONDER = "runtime://localhost/1", "runtime://localhost/2"


class Scene:
    """A session that asked another, and what is handed over."""

    def __init__(self, is_strict: bool = True) -> None:
        self.table = RoutingTable()
        self.missed: list[str] = []
        self.handed: list[tuple[Any, ...]] = []
        self.guard = ResponseGuard(self.table, is_strict, self.missed.append)
        self.asker, self.responder = FakeSession(ASKER), FakeSession(RESPONDER)
        self.caller = FakeCaller(self.responder)
        for each in (self.asker, self.responder):
            self.table.add_runtime(each)
        frame = {"id": 7, "type": "response", "from": RESPONDER, "to": ASKER, "body": {}}
        self.message = messages.parse(json.dumps(frame).encode())
        self.response = Response(ASKER, "7", self.responder.id)

    def ask(self, *groups: FakeSession) -> None:
        if groups:
            ids = frozenset(each.id for each in groups)
            self.asker.ask_group(ASKER, b"7", ids, 0.0)
        else:
            self.asker.ask(ASKER, b"7", self.responder.id, 0.0)

    def hand_back(self, *found: FakeSession) -> tuple[Outcome, int]:
        return self.guard.hand_back(
            self.message, b"{}", found or (self.asker,), self.responder, self.caller, 1.0,
            self._hand_over,
        )  # fmt: skip

    def _hand_over(self, *told: Any) -> tuple[Outcome, int]:
        self.handed.append(told)
        return Outcome.DELIVERED, 1


def test_a_response_to_another_worker_is_judged_there() -> None:
    scene = Scene()
    scene.asker.is_here = False
    assert scene.hand_back() == (Outcome.DELIVERED, 1)
    told = (b"{}", (scene.asker,), scene.responder, scene.caller, scene.response)
    assert scene.handed == [told]
    assert scene.guard.dropped == 0


def test_of_several_that_hear_an_address_those_that_asked_get_the_response() -> None:
    scene = Scene()
    scene.ask()
    tab, away = FakeSession(ASKER), FakeSession("runtime://localhost/3")
    away.is_here = False
    assert scene.hand_back(tab, scene.asker, away) == (Outcome.DELIVERED, 1)
    told = (b"{}", (scene.asker, away), scene.responder, scene.caller, scene.response)
    assert scene.handed == [told]
    assert scene.guard.dropped == 1


def test_a_session_that_has_forgotten_what_it_asked_is_named_for_its_gap() -> None:
    scene = Scene()
    scene.asker.has_forgotten = lambda: True  # type: ignore[method-assign]
    assert scene.hand_back() == (Outcome.REFUSED, 0)
    assert scene.missed == [scene.asker.id]


def test_of_a_runtime_that_is_not_here_the_session_itself_counts() -> None:
    scene = Scene()
    stranger = FakeSession("runtime://localhost/elsewhere")
    assert scene.guard.asker(stranger, scene.response, 1.0) is stranger
