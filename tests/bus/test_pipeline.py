"""The path of a message through fakes: policies, answers of components, and the record.

The enforcement point is faked here for case 51 (what a policy blocks, permits or rewrites).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from typing import Any

import pytest

from msgnode.bus.ports import DeliveryResult
from msgnode.core.decision import Decision, Effect
from msgnode.core.errors import Unavailable
from msgnode.core.pending import Pending
from msgnode.core.record import Outcome, without_tokens
from msgnode.traffic.columns import messages_table
from msgnode.traffic.row_buffer import Columns
from tests.fakes import (
    DOMAIN,
    FakeCaller,
    FakeComponent,
    FakeEnforcer,
    FakeSession,
)
from tests.stage.bus import ONE, TOKEN, TWO, Scene

PERMIT = Decision(Effect.PERMIT, passes=True, auth=True, deciding=("set", "policy", "rule"))
DENY = Decision(Effect.DENY, passes=False, auth=False, deciding=("set", "policy", "rule"))
FAKE = "domain://fake.localhost"


class FakeHolders:
    """Other workers of which it is known, or not, who holds what."""

    def __init__(self, *unheard: str, is_known: bool = True) -> None:
        self.answers = is_known
        self.asked: list[tuple[str, ...]] = []
        self.unanswered: list[str] = []
        self.has_answered = False
        self.unheard = set(unheard)  # addresses of which it is not known who is there

    def find(self, key: object, addresses: Collection[str]) -> None:
        if not self.has_answered:
            self.asked.append(tuple(addresses))
            raise Pending("The holder", lambda known: None)

    def hears(self, address: str) -> bool:
        return address not in self.unheard

    def require(self, key: object, addresses: Collection[str]) -> None:
        self.find(key, addresses)
        if not self.answers:
            raise Unavailable("Whose it is cannot be found out.")

    def is_known(self, address: str) -> bool:
        return self.answers

    def miss_response(self, address: str) -> None:
        self.unanswered.append(address)


NOBODY = "hyperty://localhost/nobody"


@pytest.mark.parametrize(("is_known", "code"), [(True, 404), (False, 503)])
def test_w4_what_nobody_here_knows_is_404_only_once_the_others_were_asked(
    is_known: bool, code: int
) -> None:
    holders = FakeHolders(NOBODY, is_known=is_known)
    scene = Scene(enforcer=(policies := FakeEnforcer()), holders=holders)
    scene.say(to=NOBODY)
    assert (scene.codes, len(scene.caller.held), policies.asked) == ([], 1, [])
    holders.has_answered = True
    scene.say(to=NOBODY)
    assert (scene.codes, holders.asked) == ([code], [(NOBODY,)])


@pytest.mark.parametrize("is_known", [True, False])
def test_w7_who_misses_a_response_is_told_unless_it_is_certainly_nobody(is_known: bool) -> None:
    holders = FakeHolders(NOBODY, is_known=is_known)
    holders.has_answered = True
    scene = Scene(holders=holders)
    scene.say(to=NOBODY, type="response", body={"code": 200})
    assert (scene.codes, holders.unanswered) == ([], [] if is_known else [NOBODY])


def test_the_others_are_asked_once_for_all_recipients_and_never_for_what_is_known() -> None:
    other = "hyperty://localhost/2"
    holders = FakeHolders(NOBODY, other)
    scene = Scene(holders=holders)
    scene.say()
    assert holders.asked == []
    assert len(scene.target.frames) == 1
    scene.say(to=[NOBODY, TWO, other])
    assert holders.asked == [(NOBODY, other)]
    assert len(scene.target.frames) == 1


@pytest.mark.parametrize(
    ("type_", "to"),
    [
        ("update", "comm://d/1/changes"),
        ("response", "comm://d/1/x"),
        ("create", "hyperty-runtime://d/1/x"),
    ],
)
def test_w5_whatever_goes_to_an_address_waits_until_all_that_are_there_are_known(
    type_: str, to: str
) -> None:
    holders = FakeHolders(to)
    scene = Scene(holders=holders)
    scene.table.subscribe(to, scene.target)
    scene.say(type_=type_, to=to)
    assert len(scene.caller.held) == 1
    assert holders.asked == [(to,)]
    assert scene.target.frames == []


def test_what_an_owner_or_a_component_hears_is_heard_by_nobody_else_and_never_asked_for() -> None:
    held = "hyperty://localhost/held"
    holders = FakeHolders(held, FAKE)
    scene = Scene(FakeComponent(lambda: {"code": 200}), holders=holders)
    scene.table.allocate(held, scene.target)
    scene.say(to=held)
    scene.say(to=FAKE)
    assert holders.asked == []
    assert len(scene.target.frames) == 1


def test_what_a_component_needs_to_know_of_an_address_is_found_out_before_it_is_asked() -> None:
    answered: list[dict[str, int]] = []

    def answer() -> dict[str, int]:
        answered.append({"code": 200})
        return answered[-1]

    component = FakeComponent(answer)
    component.addresses_of = lambda message: [NOBODY, f"{TWO}/x"]  # type: ignore[method-assign]
    holders = FakeHolders(FAKE, NOBODY, is_known=False)
    scene = Scene(component, holders=holders)
    scene.say(to=FAKE)
    assert (holders.asked, answered) == ([(NOBODY,)], [])
    holders.has_answered = True
    scene.say(to=FAKE)
    assert (scene.codes, answered) == ([503], [])
    holders.answers = True
    scene.say(to=FAKE)
    assert (scene.codes, len(answered)) == ([503, 200], 1)


def test_case_51_what_a_policy_blocks_is_answered_403_under_both_keys() -> None:
    for side in ("in", "out"):
        scene = Scene(enforcer=FakeEnforcer(**{side: DENY}))
        scene.say()
        (answer,) = scene.caller.answers
        assert answer["from"] == TWO
        assert answer["body"]["code"] == 403
        assert answer["body"]["desc"] == answer["body"]["description"]
        assert scene.target.frames == []
        assert [row.outcome for row in scene.recorder.rows] == [Outcome.BLOCKED]


def test_case_51_what_a_policy_permits_is_marked() -> None:
    for decisions in ({"in": PERMIT}, {"out": PERMIT}):
        scene = Scene(enforcer=FakeEnforcer(**decisions))
        scene.say(body={"auth": False, "value": 1})
        assert scene.target.messages[0]["body"] == {"auth": True, "value": 1}


@pytest.mark.parametrize("side", ["in", "out"])
def test_case_51_a_policy_may_rewrite_the_body(side: str) -> None:
    rewrite = Decision(Effect.PERMIT, passes=True, auth=True, body=b'{"value":2}')
    scene = Scene(enforcer=FakeEnforcer(**{side: rewrite}))
    scene.say(body={"value": 1})
    assert scene.target.messages[0]["body"] == {"auth": True, "value": 2}


def test_a_blocked_response_is_dropped_without_an_answer() -> None:
    scene = Scene(enforcer=FakeEnforcer(out=DENY))
    scene.say("response", body={"code": 200})
    assert scene.caller.frames == scene.target.frames == []
    assert scene.recorder.rows[0].outcome is Outcome.BLOCKED


async def test_a_component_that_takes_time_holds_up_nobody() -> None:
    waiting: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
    scene = Scene(FakeComponent(lambda: waiting))
    scene.say(to=FAKE)
    scene.say()
    assert len(scene.target.frames) == 1
    assert scene.caller.pending == 1
    waiting.set_result({"code": 200})
    await asyncio.sleep(0)
    assert (scene.codes, scene.caller.pending) == ([200], 0)


def test_a_component_never_sees_a_response() -> None:
    scene = Scene(FakeComponent(AssertionError("asked")))
    scene.say("response", to=FAKE)
    assert scene.caller.frames == []


def test_each_recipient_has_one_row_and_a_refusal_has_one_too() -> None:
    scene = Scene(FakeComponent({"code": 200}))
    scene.say(to=[TWO, FAKE, "comm://d/none"])
    scene.pipeline.carry(b"nonsense", scene.caller)
    rows = scene.recorder.rows
    assert [(row.to, row.outcome, row.code) for row in rows] == [
        (TWO, Outcome.DELIVERED, 0),
        (FAKE, Outcome.ANSWERED, 200),
        ("comm://d/none", Outcome.UNDELIVERABLE, 404),
        ("", Outcome.REFUSED, 400),
    ]


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "re-open", "to": "mn:/session"}, {"type": "create", "to": TWO},
        {"type": "create", "to": "x"}, {"type": "telepathy", "to": "x"}, {"type": 7, "to": "x"},
    ],
)  # fmt: skip
def test_no_token_comes_into_the_record(frame: dict[str, Any]) -> None:
    scene = Scene()
    message = {"id": 1, "from": f"{ONE}/{TOKEN}", "body": {}, **frame}
    scene.pipeline.carry(json.dumps(message).encode(), scene.caller)
    scene.pipeline.carry(json.dumps(message).encode(), FakeCaller())
    stored = Columns()
    for row in scene.recorder.rows:
        stored.add(row)
        assert TOKEN not in repr(without_tokens(row))
    assert len(stored) == 2
    assert TOKEN not in repr(messages_table(stored, "node", "worker").to_pydict())


def test_a_type_the_node_does_not_know_is_recorded_as_other() -> None:
    scene = Scene()
    scene.say("telepathy")
    scene.say("UPDATE")
    assert [row.type for row in scene.recorder.rows] == ["other", "update"]
    assert len(scene.target.frames) == 2


def test_a_listener_that_fails_is_told_of_a_gap_and_all_others_hear() -> None:
    class Broken(FakeSession):
        def deliver(self, frame: bytes) -> DeliveryResult:
            raise RuntimeError("broken")

    scene = Scene()
    crowd = [
        FakeSession("runtime://localhost/3"),
        Broken("runtime://localhost/4"),
        FakeSession("runtime://localhost/5"),
    ]
    for each in crowd:
        scene.table.subscribe("comm://d/1/changes", each)
    scene.say("update", to="comm://d/1/changes")
    scene.say("update", to="comm://d/1/changes")
    assert [len(each.frames) for each in crowd] == [2, 0, 2]
    assert [each.has_missed for each in crowd] == [False, True, False]
    assert [row.listeners for row in scene.recorder.rows] == [2, 2]


@pytest.mark.parametrize(("to", "sender"), [(TWO, TWO), ("mn:/session", None), ("", None)])
def test_what_is_no_message_is_answered_from_where_it_was_meant_for_but_not_from_the_session(
    to: str, sender: str | None
) -> None:
    scene = Scene()
    scene.pipeline.carry(json.dumps({"id": 7, "from": ONE, "to": to}).encode(), scene.caller)
    (answer,) = scene.caller.answers
    assert (answer["id"], answer["to"], answer["body"]["code"]) == (7, ONE, 400)
    assert answer["from"] == (sender or f"domain://msg-node.{DOMAIN}")
