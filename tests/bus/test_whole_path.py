"""What each part on the path of a message is told, and its sender where one refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from msgnode.bus.ports import DeliveryResult
from msgnode.bus.return_paths import ReturnPath
from msgnode.core.decision import Decision, Direction, Effect
from msgnode.core.errors import Forbidden, NodeError, Unavailable
from msgnode.core.identity import Speaker
from msgnode.core.messages import Message
from msgnode.core.pending import Pending
from msgnode.core.record import Outcome
from tests.fakes import FakeCaller, FakeSession
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

GROUP = "comm://localhost/1"
NOBODY = "hyperty://localhost/nobody"
DENY = Decision(Effect.DENY, False, False, ("set", "rule"), reason="Not in working hours.")


@pytest.mark.parametrize("to", [TWO, [TWO, NOBODY]])
def test_admission_and_policies_are_told_who_says_what(to: Any) -> None:
    admission, policies = Admission(), Policies()
    scene = Scene(authorizer=admission, enforcer=policies)
    scene.say(to=to)
    assert admission.asked == [("authorize", "create", ONE)]
    number = len(to) if isinstance(to, list) else 1
    told = [("create", ONE, Direction.IN), ("create", ONE, Direction.OUT)]
    assert policies.asked == told * number


class Door:
    """Keeps who came with what."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def handle(self, message: Message, caller: Any) -> None:
        self.asked.append((message.type, caller))


def test_a_session_frame_comes_with_its_connection() -> None:
    admission, policies, handler = Admission(), Policies(), Door()
    scene = Scene(authorizer=admission, enforcer=policies, session_handler=handler)
    scene.say("open", "mn:/session")
    assert admission.asked == [("authenticate", "open", ONE)]
    assert policies.asked == [("open", ONE, Direction.IN)]
    assert handler.asked == [("open", scene.caller)]


@pytest.mark.parametrize("to", [TWO, [TWO, NOBODY], "mn:/session"])
def test_a_frame_that_has_to_wait_is_held_as_it_came(to: Any) -> None:
    scene = Scene(lease=Waits())
    scene.say(to=to, body={"value": 1})
    (frame,) = scene.caller.held
    assert json.loads(frame) == {
        "id": 1, "type": "create", "from": ONE, "to": to, "body": {"value": 1}
    }  # fmt: skip
    assert (scene.recorder.rows, scene.caller.frames) == ([], [])


@pytest.mark.parametrize(
    ("to", "sender"), [(TWO, TWO), ([TWO, NOBODY], TWO), ("mn:/session", "mn:/session")]
)
@pytest.mark.parametrize(
    ("error", "code"), [(Forbidden("Not you."), 403), (RuntimeError("broken"), 500)]
)
def test_who_is_not_admitted_is_told_and_no_policy_is_noted(
    to: Any, sender: str, error: Exception, code: int
) -> None:
    scene = Scene(authorizer=Admission(error))
    scene.say(to=to)
    assert scene.answer() == (code, sender)
    row = scene.row()
    assert (row.outcome, row.code, row.effect) == (Outcome.REFUSED, code, "notApplicable")
    assert (row.rule, row.to, row.listeners, row.component) == ("", sender, 0, "")
    assert 0 <= row.latency < 5


def test_a_session_frame_that_a_policy_blocks_is_answered_by_the_node() -> None:
    scene = Scene(enforcer=Policies({"in": DENY}))
    scene.say("open", "mn:/session")
    assert scene.answer() == (403, "domain://msg-node.localhost")
    (answer,) = scene.caller.answers
    assert "Not in working hours." in answer["body"]["description"]
    assert (scene.row().outcome, scene.row().rule) == (Outcome.BLOCKED, "rule")


@pytest.mark.parametrize("direction", ["in", "out"])
def test_each_of_several_recipients_that_a_policy_blocks_is_answered(direction: str) -> None:
    scene = Scene(enforcer=Policies({direction: DENY}))
    scene.say(to=[TWO, ONE])
    told = [(each["from"], each["body"]["code"]) for each in scene.caller.answers]
    assert told == [(TWO, 403), (ONE, 403)]
    assert all("working hours" in each["body"]["description"] for each in scene.caller.answers)
    rows = scene.recorder.rows
    assert [(row.outcome, row.rule, row.code) for row in rows] == [
        (Outcome.BLOCKED, "rule", 403)
    ] * 2
    assert scene.target.frames == []


def test_nobody_of_this_domain_is_told_as_such() -> None:
    scene = Scene()
    scene.say(to=[NOBODY, "hyperty://elsewhere/1"])
    said = {each["from"]: each["body"]["description"] for each in scene.caller.answers}
    assert said == {
        NOBODY: f"Nobody listens to {NOBODY}.",
        "hyperty://elsewhere/1": "Nobody listens to hyperty://elsewhere/1, "
        "and no stub leads to the domain elsewhere.",
    }
    assert scene.codes == [404, 404]


class Others:
    """Other workers, of whom it is known what they hold, or not."""

    def __init__(self, *known: str, fact: Pending | None = None) -> None:
        self.known = known
        self.found: list[Any] = []
        self.fact = fact

    def find(self, key: Any, addresses: Any) -> None:
        self.found.append((key, tuple(addresses)))
        if self.fact is not None:
            raise self.fact

    def hears(self, address: str) -> bool:
        return True

    def is_known(self, address: str) -> bool:
        return address in self.known


def test_what_other_workers_cannot_tell_is_503_and_what_they_can_404() -> None:
    scene = Scene(holders=Others(NOBODY))
    scene.say(to=[NOBODY, f"{NOBODY}/2"])
    assert [(each["from"], each["body"]["code"]) for each in scene.caller.answers] == [
        (NOBODY, 404), (f"{NOBODY}/2", 503)
    ]  # fmt: skip
    said = scene.caller.answers[1]["body"]["description"]
    assert said == f"Whether anybody listens to {NOBODY}/2 is not known just now."


class Foreign:
    """Other domains, all of which are away."""

    def refusal(self, to: str) -> NodeError | None:
        return Unavailable(f"{to} is of a peer that is away.")


def test_what_is_known_of_a_foreign_domain_is_told() -> None:
    scene = Scene(foreign=Foreign())
    scene.say(to="hyperty://b.example/1")
    assert scene.answer() == (503, "hyperty://b.example/1")
    said = scene.caller.answers[0]["body"]["description"]
    assert said == "hyperty://b.example/1 is of a peer that is away."


STUB = f"{TWO}/p2phandler/1"


@pytest.mark.parametrize(
    ("type_", "to", "invited"),
    [
        ("create", STUB, [STUB]),
        ("update", STUB, []),
        ("create", f"{TWO}/chat", []),
        ("create", f"{TWO}/p2pchat", []),
        ("update", f"{TWO}/p2pchat", []),
    ],
)
def test_an_invitation_to_a_peer_is_remembered_with_who_invites(
    type_: str, to: str, invited: list[str]
) -> None:
    scene = Scene()
    ear = Ear(ONE)
    scene.caller = FakeCaller(ear)
    scene.say(type_, to)
    assert ear.invited == invited
    assert len(scene.target.frames) == 1


@pytest.mark.parametrize(("to", "heard"), [(STUB, 0), (f"{TWO}/chat", 1)])
def test_an_invitation_does_not_wait_for_a_runtime_that_is_away(to: str, heard: int) -> None:
    scene = Scene()
    scene.target.is_connected = False
    scene.say(to=to)
    assert len(scene.target.frames) == heard
    assert scene.codes == ([] if heard else [503])
    if not heard:
        said = scene.caller.answers[0]["body"]["description"]
        assert said == f"{STUB} is not connected at the moment; an invitation does not wait."


def shared_scene(number: int, is_here: bool = False) -> tuple[Scene, list[Ear]]:
    """The sender has a second tab; so many listen to the group, at another worker or here."""
    scene = Scene()
    scene.table.add_runtime(FakeSession(ONE))
    ears = [Ear(f"{TWO}/{each}", is_here) for each in range(number)]
    for ear in ears:
        scene.table.subscribe(GROUP, ear)
    return scene, ears


@pytest.mark.parametrize("number", [1, 2, 300])
def test_the_way_back_goes_with_a_request_of_one_of_several_tabs(number: int) -> None:
    scene, ears = shared_scene(number)
    scene.say(to=GROUP, id=7)
    way = ReturnPath(ONE, "7", scene.sender.id, ONE)
    assert [ear.beside for ear in ears] == [[way]] * number
    paths = scene.table.return_paths
    assert [paths.of(ear.id) for ear in ears] == [[way] if number == 1 else []] * number
    assert paths.of("") == []


def test_the_way_back_is_kept_and_goes_nowhere_with_a_request_to_one_who_is_here() -> None:
    scene, (ear,) = shared_scene(1, is_here=True)
    scene.say(to=GROUP, id=7)
    assert (len(ear.frames), ear.beside) == (1, [])
    assert scene.table.return_paths.find(ONE, "7") is not None


def test_no_way_back_is_kept_for_a_runtime_with_one_tab() -> None:
    scene = Scene()
    scene.table.add_runtime(FakeSession(TWO))  # of somebody else there are two
    scene.say(id=7)
    assert scene.table.requester_of(ONE, "7") is None
    assert len(scene.table.return_paths) == 0


@pytest.mark.parametrize(
    ("type_", "to", "asks"),
    [
        ("update", GROUP, True),
        ("create", f"{GROUP}/status", True),
        ("create", f"{GROUP}/changes", True),
        ("update", f"{GROUP}/changes", False),
        ("update", f"{GROUP}/status", False),
    ],
)
@pytest.mark.parametrize("number", [1, 2])
def test_whoever_is_asked_may_answer_and_an_event_asks_nobody(
    type_: str, to: str, asks: bool, number: int
) -> None:
    scene = Scene()
    listeners = [FakeSession(f"{TWO}/{each}") for each in range(number)]
    for listener in listeners:
        scene.table.subscribe(to, listener)
    scene.say(type_, to)
    may = [scene.sender.has_asked(ONE, "1", listener.id, 1.0) for listener in listeners]
    assert may == [asks] * number


def test_of_two_groups_each_answers_for_itself() -> None:
    scene = Scene()
    groups = {f"{GROUP}/{name}": [FakeSession(f"{TWO}/{name}{n}") for n in "12"] for name in "ab"}
    for id_, (address, members) in enumerate(groups.items()):
        for member in members:
            scene.table.subscribe(address, member)
        scene.say(to=address, id=id_)
    for id_, members in enumerate(groups.values()):
        for others in groups.values():
            may = [scene.sender.has_asked(ONE, str(id_), each.id, 1.0) for each in others]
            assert may == [others is members] * 2


def answered(scene: Scene, responder: FakeSession, **more: Any) -> Caller:
    frame = {"id": 1, "type": "response", "from": responder.runtime_url, "to": ONE}
    caller = Caller(responder)
    scene.pipeline.carry(json.dumps(frame | {"body": {"code": 200}} | more).encode(), caller)
    return caller


@pytest.mark.parametrize("is_strict", [True, False])
@pytest.mark.parametrize("number", [1, 2])
def test_a_response_is_noted_and_holds_back_its_sender_for_a_slow_reader(
    is_strict: bool, number: int
) -> None:
    scene = Scene(is_strict=is_strict)
    if number == 2:  # a second tab, which has not asked
        scene.table.add_runtime(FakeSession(ONE))
    scene.say("read")
    scene.sender.taken = DeliveryResult.BEHIND
    caller = answered(scene, scene.target)
    row = scene.recorder.rows[1]
    assert (row.outcome, row.code, row.listeners) == (Outcome.DELIVERED, 0, 1)
    assert caller.waited_for == [ONE]
    assert caller.frames == []


def test_a_component_is_told_who_asks_what() -> None:
    component = Component({"code": 200})
    scene = Scene(component)
    scene.say("read", COMPONENT, body={"resource": "x"})
    assert component.callers == [scene.sender]
    assert [(each.type, each.recipients) for each in component.messages] == [("read", (COMPONENT,))]


class Breaks:
    """A policy engine that breaks where messages leave."""

    is_idle = False

    def enforce(self, message: Message, speaker: Speaker, direction: Direction) -> Decision:
        if direction is Direction.OUT:
            raise RuntimeError("broken")
        return Decision(Effect.NOT_APPLICABLE, True, False)


def test_a_fault_of_the_node_is_not_told_of_an_event() -> None:
    scene = Scene(enforcer=Breaks())
    scene.say("update", f"{TWO}/status")
    assert scene.caller.frames == []
    assert (scene.row().outcome, scene.row().code) == (Outcome.DROPPED, 0)


@pytest.mark.parametrize(("type_", "tail"), [("create", ""), ("update", "/changes")])
def test_a_large_fan_out_that_nobody_takes_is_told_of_a_request_alone(
    type_: str, tail: str
) -> None:
    scene = Scene()
    for each in range(300):
        listener = FakeSession(f"{TWO}/{each}")
        listener.taken = DeliveryResult.DROPPED
        scene.table.subscribe(GROUP + tail, listener)
    scene.say(type_, GROUP + tail)
    said = [each["body"]["description"] for each in scene.caller.answers]
    full = f"{GROUP} is not connected, and its queue is full."
    assert said == ([] if tail else [full])
    assert scene.row().code == (0 if tail else 503)
    assert scene.row().listeners == 0


class Late:
    """A fact that comes when it is told to."""

    def __init__(self) -> None:
        self.callbacks: list[Any] = []
        self.fact = Pending("Who holds it", self.callbacks.append)


def bounce(scene: Scene, sender: str = TWO, to: str = GROUP) -> None:
    frame = {"id": "x", "type": "create", "from": sender, "to": to, "body": {}}
    scene.bounces.bounce(json.dumps(frame).encode())


def test_the_sender_of_a_bounced_frame_is_looked_for_and_told_once_found() -> None:
    late = Late()
    others = Others(fact=late.fact)
    scene = Scene(holders=others)
    bounce(scene)
    bounce(scene)
    assert scene.target.frames == []
    (one, two) = others.found
    assert one == two
    assert (one[0][1], one[1]) == ("bounced", (TWO,))
    assert json.loads(one[0][0])["to"] == TWO
    for known in late.callbacks:
        known()
    assert [each["body"]["code"] for each in scene.target.messages] == [404, 404]


def test_a_frame_that_comes_after_the_session_of_a_foreign_node_is_refused_as_its_domain_is() -> (
    None
):
    scene = Scene(foreign=Foreign())
    bounce(scene, to="hyperty://b.example/1")
    bounce(scene)
    assert [each["body"]["code"] for each in scene.target.messages] == [503, 404]


def test_the_answer_to_a_bounced_frame_reaches_its_sender_and_no_subscriber() -> None:
    scene = Scene()
    gone = "runtime://localhost/gone"
    scene.table.subscribe(f"{gone}/1", scene.target)
    bounce(scene, f"{gone}/1")
    assert scene.target.frames == []


def test_a_group_is_one_set_of_ids_for_all_requests_as_long_as_it_stays_the_same() -> None:
    scene = Scene()
    sets: list[frozenset[str]] = []
    scene.sender.ask_group = lambda sender, id_, asked, now: sets.append(asked)  # type: ignore[method-assign]
    for number in range(2):
        scene.table.subscribe(GROUP, FakeSession(f"{TWO}/{number}"))
    scene.say(to=GROUP)
    scene.say(to=GROUP)
    scene.table.subscribe(GROUP, FakeSession(f"{TWO}/new"))
    scene.say(to=GROUP)
    assert sets[0] is sets[1]
    assert [len(each) for each in sets] == [2, 2, 3]


def test_a_session_frame_that_is_answered_has_no_code_of_its_own() -> None:
    scene = Scene()
    scene.say("open", "mn:/session")
    assert (scene.row().outcome, scene.row().code) == (Outcome.ANSWERED, 0)


@pytest.mark.parametrize(
    ("frame", "to", "id_", "sender"),
    [
        (b"{", ONE, "", ""),
        (b'{"id":1,"type":"create","from":"runtime://localhost/9","to":7,"body":{}}',
         "runtime://localhost/9", "1", "runtime://localhost/9"),
    ],
)  # fmt: skip
def test_a_frame_that_is_no_message_is_noted_as_far_as_it_is_known(
    frame: bytes, to: str, id_: str, sender: str
) -> None:
    scene = Scene()
    scene.pipeline.carry(frame, scene.caller)
    row = scene.row()
    assert (row.session, row.id, row.type, row.sender) == (scene.sender.id, id_, "", sender)
    assert (row.size, row.listeners, row.outcome, row.code) == (
        len(frame), 0, Outcome.REFUSED, 400
    )  # fmt: skip
    assert (row.runtime, row.component, row.effect) == (ONE, "", "notApplicable")
    assert 0 < row.latency < 5
    assert scene.tapped == [(row, b"")]
    (answer,) = scene.caller.answers
    assert (answer["to"], answer["from"]) == (to, "domain://msg-node.localhost")
    scene.pipeline.watch(None)
    scene.pipeline.carry(frame, scene.caller)
    assert (len(scene.recorder.rows), len(scene.tapped)) == (2, 1)
