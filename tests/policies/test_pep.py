"""Enforcement: decisions obeyed, obligations done once, nothing ever raised."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from msgnode.core import messages
from msgnode.core.decision import Direction, Effect
from msgnode.core.identity import Identity, Origin, Speaker
from msgnode.core.rates import Rates
from policies.enforcement import environment
from policies.enforcement.decision_buffer import MASK, PER_SOURCE, DecisionBuffer, masked
from policies.enforcement.defaults import Defaults
from policies.enforcement.pep import PolicyEnforcer
from policies.enforcement.pip import InformationPoint
from policies.enforcement.snapshot import EMPTY_SNAPSHOT, make_snapshot
from policies.engine.attributes import READERS, SHARED, Facts
from policies.engine.language import ObligationExpression, PolicyError
from policies.engine.obligation_schema import rewritable_path
from policies.engine.rewriting import rewritten
from tests.fakes import Clock

BOB = Speaker("s1", "runtime://a.com/1", identity=Identity("google", "1", "bob@a.com"))
COMPONENT = Speaker("", "", Origin.COMPONENT)
IN, OUT = Direction.IN, Direction.OUT


class Point:
    """An enforcement point with its clock and journal at hand."""

    def __init__(self, *rules, defaults=None, sample=0, document=None):
        self.clock = Clock(1000.0)
        self.decision_buffer = DecisionBuffer(sample=sample)
        self.pep = PolicyEnforcer(
            InformationPoint(rates=Rates(self.clock)),
            self.decision_buffer,
            defaults or Defaults(),
            lambda: datetime(2017, 3, 15, 12, tzinfo=UTC),
            {"domain": "a.com"},
        )
        document = document or [{"id": "S", "policies": [{"id": "P", "rules": list(rules)}]}]
        self.pep.snapshot = make_snapshot(document, {"bad": ["bob@a.com"]}, 7)

    def enforce(self, direction=IN, speaker=BOB, **message):
        return self.pep.enforce(parsed(**message), speaker, direction)


def parsed(**message):
    ends = {"from": "hyperty://a.com/1", "to": "hyperty://b.com/2"}
    return messages.parse(json.dumps({"id": 1, "type": "create", **ends, **message}).encode())


def deny(condition=None, **more):
    return {"id": "R", "effect": "deny", "condition": condition or {}, **more}


def permit(condition=None, **more):
    return {"id": "R", "effect": "permit", "condition": condition or {}, **more}


def test_a_decision_names_what_decided_and_the_version():
    decision = Point(deny()).enforce()
    assert (decision.effect, decision.passes, decision.auth) == (Effect.DENY, False, False)
    assert (decision.deciding, decision.version) == (("S", "P", "R"), 7)


def test_what_no_policy_decides_is_delivered_as_the_settings_say(settings: Any) -> None:
    choice = {"DELIVER_NOT_APPLICABLE": False, "DELIVER_INDETERMINATE": True}
    settings.POLICY = {**settings.POLICY, **choice}
    assert environment.defaults() == Defaults(False, True)


@pytest.mark.parametrize(
    ("rule", "defaults", "passes"),
    [
        (deny({"msgId": {"equals": 9}}), Defaults(), True),
        (deny({"msgId": {"equals": 9}}), Defaults(deliver_not_applicable=False), False),
        (deny({"msgTo": {"moreThan": 9}}), Defaults(), False),
        (deny({"msgTo": {"moreThan": 9}}), Defaults(deliver_indeterminate=True), True),
    ],
)
def test_what_nobody_decides_follows_the_defaults_and_is_never_marked(rule, defaults, passes):
    decision = Point(rule, defaults=defaults).enforce()
    assert (decision.passes, decision.auth) == (passes, False)


def test_without_policies_it_is_idle_unless_the_default_refuses():
    point = Point(document=[{"id": "S", "mode": "off", "policies": [{"rules": [deny()]}]}])
    assert point.pep.is_idle
    assert point.enforce().passes
    strict = Point(document=[{"id": "S"}], defaults=Defaults(deliver_not_applicable=False))
    assert not strict.pep.is_idle
    assert not strict.enforce().passes


def test_who_sends_is_what_the_speaker_says_and_not_the_body():
    claim = {"identity": {"userProfile": {"username": "eve@a.com"}}}
    point = Point(deny({"srcUsername": {"equals": "eve@a.com"}}))
    assert point.enforce(body=claim).passes
    assert not Point(deny({"srcUsername": {"in": "@bad"}})).enforce().passes


def test_what_a_peer_brings_is_known_by_its_domain_and_its_hop():
    theirs = replace(BOB, origin=Origin.FOREIGN, peer="b.example")
    for condition in (
        {"peer": {"equals": "B.example"}},
        {"peerWay": {"equals": "node"}},
        {"hops": {"moreThan": 0}},
        {"origin": {"equals": "foreign"}},
        {"rate.peer.minute": {"moreThan": 0}},
    ):
        point = Point(deny(condition))
        assert point.pep.enforce(parsed(), BOB, IN).passes, condition
        assert not point.pep.enforce(parsed(), theirs, IN).passes, condition


def test_a_fault_of_the_engine_refuses_and_is_told(monkeypatch, caplog):
    point = Point(deny())

    def fail(facts):
        raise ZeroDivisionError

    broken = point.pep.snapshot.enforced.__class__(1, fail, frozenset(), 1)
    snapshot = point.pep.snapshot
    point.pep.snapshot = replace(snapshot, version=1, enforced=broken)
    decision = point.enforce()
    assert (decision.effect, decision.passes) == (Effect.INDETERMINATE, False)
    assert "A policy decision failed." in caplog.text


def test_a_message_is_judged_once_for_both_sides_of_the_bus():
    point = Point(permit(), sample=1)
    message = parsed()
    first = point.pep.enforce(message, BOB, IN)
    assert point.pep.enforce(message, BOB, OUT) is first
    assert len(point.decision_buffer.entries) == 1


def test_a_rule_on_the_direction_is_asked_on_both_sides():
    point = Point(deny({"direction": {"equals": "out"}}))
    message = parsed()
    assert point.pep.enforce(message, BOB, IN).passes
    assert not point.pep.enforce(message, BOB, OUT).passes


def test_a_new_edition_judges_anew():
    point = Point(permit())
    message = parsed()
    assert point.pep.enforce(message, BOB, IN).auth
    point.pep.snapshot = make_snapshot([{"policies": [{"rules": [deny()]}]}], {}, 8)
    assert not point.pep.enforce(message, BOB, OUT).passes
    point.pep.snapshot = EMPTY_SNAPSHOT
    assert point.pep.enforce(message, BOB, OUT).passes


def test_rewriting_gives_a_new_body_and_only_if_something_was_cut():
    point = Point(permit(obligations={"limitByNumberOfEntries": {"body.list": 1}}))
    assert json.loads(point.enforce(body={"list": [1, 2], "a": 1}).body) == {"list": [1], "a": 1}
    for body in ({"list": [1]}, {"list": 5}, {}):
        assert point.enforce(body=body).body is None


def test_what_is_no_list_is_not_limited():
    for name in ("limitByNumberOfEntries", "limitByConditionOfEntries"):
        limit = 1 if name == "limitByNumberOfEntries" else {"n": {"moreThan": 1}}
        point = Point(permit(obligations={name: {"body.list": limit}}))
        for body in ({"list": "text"}, {"list": {"n": 0}}, {"a": 1}):
            decision = point.enforce(body=body)
            assert (decision.passes, decision.body) == (True, None)


def test_entries_that_cannot_be_judged_are_not_kept():
    limit = {"limitByConditionOfEntries": {"bodyValue": {"n": {"moreThan": 1}}}}
    decision = Point(permit(obligations=limit)).enforce(
        body={"value": [{"n": 2}, {"n": "x"}, {}, 5, {"n": 3}]}
    )
    assert json.loads(decision.body) == {"value": [{"n": 2}, {"n": 3}]}


@pytest.mark.parametrize(("friends", "kept"), [(("a", "b"), [{"user": "a"}]), ((), [])])
def test_entries_are_kept_by_a_named_list(friends, kept):
    limit = {"limitByConditionOfEntries": {"bodyValue": {"user": {"in": "@friends"}}}}
    point = Point()
    rules = [permit(obligations=limit)]
    point.pep.snapshot = make_snapshot([{"policies": [{"rules": rules}]}], {"friends": friends}, 8)
    decision = point.enforce(body={"value": [{"user": "a"}, {"user": "z"}]})
    assert decision.passes
    assert json.loads(decision.body) == {"value": kept}


@pytest.mark.parametrize(
    ("attribute", "path"),
    [
        ("<resource>", ("resource",)),
        ("valueAllocate", ("value", "allocated")),
        ("<valueAllocate>", ("value", "allocated")),
        ("body.list.X", ("list", "X")),
        ("resourceX", None),
        ("XvalueAllocate", None),
    ],
)
def test_what_may_be_limited_stands_in_the_body(attribute, path):
    assert rewritable_path(attribute) == path


def test_a_limit_of_what_is_no_part_of_the_body_is_refused():
    with pytest.raises(PolicyError):
        rewritten({}, (ObligationExpression("limitByNumberOfEntries", {"msgTo": 1}),))


def test_an_obligation_that_cannot_be_carried_out_refuses(caplog):
    point = Point(permit(obligations={"limitByNumberOfEntries": {"bodyValue": 1}}))
    message = parsed()
    message.body = b'{"value":' + b"[" * 20_000 + b"]" * 20_000 + b"}"
    decision = point.pep.enforce(message, BOB, IN)
    assert (decision.passes, decision.auth) == (False, False)


def test_a_rate_limit_refuses_what_goes_beyond_until_the_window_has_passed():
    point = Point(permit(obligations={"rateLimit": {"rate.srcSession.minute": 2}}))
    assert [point.enforce().passes for _ in range(3)] == [True, True, False]
    refused = point.enforce()
    assert (refused.code, refused.reason) == (429, "Too many messages")
    other = Speaker("s2", "runtime://a.com/2")
    assert point.enforce(speaker=other).passes
    point.clock.now += 120
    assert point.enforce().passes


def test_a_rate_limit_on_an_absent_key_lets_nothing_through():
    point = Point(permit(obligations={"rateLimit": {"rate.srcUsername.minute": 100}}))
    assert not point.enforce(speaker=Speaker("s", "runtime://a.com/1")).passes


def test_a_condition_counts_a_message_once_and_with_itself():
    point = Point(deny({"rate.srcUsername.hour": {"moreThan": 2}}))
    messages_ = [parsed() for _ in range(3)]
    passes = []
    for message in messages_:
        passes.append(point.pep.enforce(message, BOB, IN).passes)
        point.pep.enforce(message, BOB, OUT)
    assert passes == [True, True, False]


def test_address_requests_are_counted_for_a_runtime():
    point = Point(deny({"addrAllastMin": {"moreThan": 1}}))
    ends = {
        "from": "runtime://a.com/1/address-allocation",
        "to": "domain://msg-node.a.com/address-allocation",
    }
    assert point.enforce(**ends).passes
    assert point.enforce().passes
    assert not point.enforce(**ends).passes


def test_words_for_the_sender_are_told_only_with_a_refusal():
    told = {"inform": "Not today."}
    assert Point(deny(obligations=told)).enforce().reason == "Not today."
    point = Point(permit(obligations=told))
    assert point.enforce().reason == ""
    assert [pending.obligation.name for pending in point.decision_buffer.pending_obligations] == [
        "inform"
    ]


def test_an_entry_keeps_what_was_known_beside_the_message():
    point = Point(
        deny({"rate.srcUsername.minute": {"moreThan": 0}, "body.secret": {"exists": True}})
    )
    point.enforce(body={"secret": "x"})
    (entry,) = point.decision_buffer.entries
    assert entry.facts["rate.srcUsername.minute"] == 1
    assert entry.facts["srcUsername"] == BOB.identity.username
    assert entry.facts["srcOrigin"] == "runtime"
    assert "body.secret" not in entry.facts  # bodies are masked


def test_duties_are_done_once_for_both_sides():
    obligations = {"log": "seen", "limitByNumberOfEntries": {"body.list": 1}}
    point = Point(permit(obligations=obligations))
    message = parsed(body={"list": [1, 2]})
    decision = point.pep.enforce(message, BOB, IN)
    point.pep.enforce(message.with_body(decision.body), BOB, OUT)
    assert len(point.decision_buffer.pending_obligations) == 1


def test_duties_on_what_a_component_answers_are_done():
    point = Point(permit(obligations={"log": "seen"}))
    point.enforce(OUT, COMPONENT)
    assert len(point.decision_buffer.pending_obligations) == 1


def test_a_shadow_tells_what_would_have_changed_and_changes_nothing():
    document = [
        {"id": "S", "mode": "enforce", "policies": [{"rules": [permit({"msgId": {"equals": 1}})]}]},
        {"id": "T", "mode": "shadow", "priority": -1, "policies": [{"rules": [deny()]}]},
    ]
    point = Point(document=document)
    assert point.enforce().passes
    (entry,) = point.decision_buffer.entries
    assert (entry.effect, entry.passes) == ("permit", True)
    assert entry.shadow == "deny by T/T/1/R"


def test_a_subscription_is_judged_by_the_address_it_names():
    point = Point(deny({"subscribeTo": {"like": "comm://*/secret/*"}}))
    allows = point.pep.subscriptions_of("runtime://a.com/1", "domain://m/sm")
    assert not allows("comm://a.com/secret/changes", BOB)
    assert allows("comm://a.com/open/changes", BOB)


def test_a_decision_on_a_subscription_that_asked_for_no_address_is_that_of_the_others():
    point = Point(deny({"srcUsername": {"equals": "mallory@a.com"}}))
    mallory = replace(BOB, identity=Identity("google", "2", "mallory@a.com"))
    asked = []
    decide = point.pep._decide
    point.pep._decide = lambda evaluate, facts: asked.append(facts) or decide(evaluate, facts)
    allows = point.pep.subscriptions_of("runtime://a.com/1", "domain://m/sm")
    assert [allows(f"comm://a.com/{number}/changes", BOB) for number in range(3)] == [True] * 3
    assert len(asked) == 1
    assert not allows("comm://a.com/1/changes", mallory)
    point.pep.snapshot = make_snapshot([{"policies": [{"rules": [deny()]}]}], {}, 8)
    assert not allows("comm://a.com/1/changes", BOB)
    point.pep.snapshot = make_snapshot([{"policies": [{"rules": [permit()]}]}], {}, 9)
    assert allows("comm://a.com/1/changes", BOB)


def test_a_decision_on_a_subscription_that_asked_for_the_address_or_a_count_holds_for_it_alone():
    for condition in ({"subscribeTo": {"contains": "comm://a.com/1/changes"}},
                      {"resource": {"equals": "comm://a.com/1/changes"}},
                      {"bytes": {"moreThan": 300}},
                      {"time": {"moreThan": "00:00"}}):  # fmt: skip
        point = Point(deny(condition))
        asked = []
        decide = point.pep._decide
        point.pep._decide = lambda evaluate, facts: asked.append(facts) or decide(evaluate, facts)  # noqa: B023
        allows = point.pep.subscriptions_of("runtime://a.com/1", "domain://m/sm")
        for number in range(3):
            allows(f"comm://a.com/{number}/changes", BOB)
        assert len(asked) == 3


def test_refusals_and_errors_are_journaled_and_of_permits_a_sample():
    point = Point(
        permit({"msgId": {"equals": 1}}), deny({"msgId": {"equals": 2}}, id="D"), sample=3
    )
    for id_ in (1, 2, 1, 1, 2, 1):
        point.enforce(id=id_)
    assert [entry.effect for entry in point.decision_buffer.entries] == ["deny", "permit", "deny"]
    entries, hits = point.decision_buffer.take()
    assert hits == {("S", "P", "R"): 4, ("S", "P", "D"): 2}
    assert len(entries) == 3
    assert point.decision_buffer.take()[0] == []


def test_the_journal_is_bounded():
    point = Point(deny())
    point.pep.decision_buffer = point.decision_buffer = DecisionBuffer(capacity=2)
    for _ in range(5):
        point.enforce()
    assert (len(point.decision_buffer.entries), point.decision_buffer.dropped) == (2, 3)


def test_the_refusals_of_one_source_leave_room_for_those_of_others():
    point = Point(deny())
    mallory = replace(BOB, remote_address="192.0.2.1")
    for _ in range(PER_SOURCE + 50):
        point.enforce(speaker=mallory)
    point.enforce(speaker=replace(BOB, remote_address="192.0.2.2"))
    assert len(point.decision_buffer.entries) == PER_SOURCE + 1
    assert point.decision_buffer.dropped == 50
    point.decision_buffer.take()
    point.enforce(speaker=mallory)
    assert len(point.decision_buffer.entries) == 1


def test_bodies_are_masked_except_for_what_a_message_is_about():
    body = {"resource": "user://a", "value": {"text": "private", "n": 5, "list": ["x", True]}}
    assert masked(body) == {
        "resource": "user://a",
        "value": {"text": MASK, "n": 5, "list": [MASK, True]},
    }


def test_no_deciding_text_of_policies_reaches_the_sender():
    decision = Point(deny(id="secret-rule-name")).enforce()
    assert "secret-rule-name" not in decision.reason


def test_a_repeated_message_is_decided_alike_and_counted():
    point = Point(permit({"msgTo": {"like": "hyperty:*"}}))
    assert len({id(point.enforce(id=n)) for n in range(5)}) == 1
    assert point.decision_buffer.take()[1] == {("S", "P", "R"): 5}
    point.enforce()
    assert point.decision_buffer.take()[1] == {("S", "P", "R"): 1}


def test_repetition_stops_where_the_body_or_the_clock_is_asked():
    point = Point(permit({"bodyValue": {"equals": 1}}), deny({"bodyValue": {"equals": 2}}, id="D"))
    assert point.enforce(body={"value": 1}).auth
    assert not point.enforce(body={"value": 2}).passes
    assert not point.enforce(body={"value": 3}).auth


def test_another_speaker_type_or_recipient_is_no_repetition():
    eve = Speaker("s9", "runtime://a.com/9", identity=Identity("google", "9", "eve@a.com"))
    point = Point(
        deny({"srcUsername": {"equals": "eve@a.com"}}),
        deny({"actionType": {"equals": "delete"}}, id="T"),
        deny({"msgTo": {"like": "*/9"}}, id="U"),
    )
    assert point.enforce().passes
    assert not point.enforce(speaker=eve).passes
    assert not point.enforce(type="delete").passes
    assert not point.enforce(to="hyperty://b.com/9").passes
    assert point.enforce().passes


def test_repetition_is_bounded(monkeypatch):
    monkeypatch.setattr("policies.enforcement.pep.MAX_REPEATED", 3)
    point = Point(permit())
    for number in range(10):
        assert point.enforce(to=f"hyperty://b.com/{number}").auth
    assert len(point.pep._repeated) <= 3


def passing(point, speaker=BOB, **message):
    """Whether a message passes, and whether that had to be worked out."""
    before = point.pep.evaluated
    return point.enforce(speaker=speaker, **message).passes, point.pep.evaluated > before


def test_what_is_decided_by_domains_is_decided_once_for_all_addresses_of_them():
    point = Point(deny({"dstSPDomain": {"equals": "bad.com"}}))
    assert passing(point) == (True, True)
    assert passing(point, **{"from": "hyperty://a.com/9", "to": "hyperty://b.com/8"}) == (
        True,
        False,
    )
    other = [
        {"to": "hyperty://c.com/2"},
        {"to": "comm://b.com/2"},
        {"from": "hyperty://z.com/1"},
        {"from": "runtime://a.com/1"},
        {"type": "read"},
        {"to": "b.com"},
        {"to": "b.com/2"},
    ]
    for message in other:
        assert passing(point, **message) == (True, True), message
    eve = replace(BOB, identity=Identity("google", "2", "eve@a.com"))
    assert passing(point, speaker=eve) == (True, True)
    assert passing(point, to="hyperty://bad.com/2") == (False, True)
    assert passing(point, to="hyperty://bad.com/2") == (False, True)


def test_what_is_decided_by_an_address_is_decided_for_each():
    point = Point(deny({"msgTo": {"like": "*/secret"}}))
    assert passing(point) == (True, True)
    assert passing(point) == (True, False)
    assert passing(point, to="hyperty://b.com/3") == (True, True)
    assert passing(point, to="hyperty://b.com/secret") == (False, True)


@pytest.mark.parametrize("name", sorted({each.lstrip("#") for each in READERS} - SHARED))
def test_what_may_differ_within_a_domain_is_not_decided_by_domains(name):
    rules = [permit({name: {"exists": there}}, id=f"R{there}") for there in (True, False)]
    point = Point(*rules)
    point.enforce()
    assert all(key[0] == "hyperty://a.com/1" for key in point.pep._repeated)


@pytest.mark.parametrize("name", sorted(SHARED & set(READERS)))
def test_what_domains_share_is_the_same_for_two_addresses_of_them(name):
    two = [
        Facts(parsed(**ends, id=id_, body={"value": id_}), BOB, IN, ends["to"], Point().pep.around)
        for id_, ends in enumerate(
            (
                {"from": "hyperty://a.com/1", "to": "comm://b.com/2"},
                {"from": "hyperty://a.com/x/sm", "to": "comm://b.com/y/children/z"},
            )
        )
    ]
    assert two[0][name] == two[1][name]


def test_decisions_by_domain_and_by_address_are_bounded_together(monkeypatch):
    monkeypatch.setattr("policies.enforcement.pep.MAX_REPEATED", 3)
    for rule in (permit(), permit({"msgTo": {"exists": True}})):
        point = Point(rule)
        for number in range(10):
            assert point.enforce(to=f"hyperty://{number}.com/1").auth
            assert 1 <= len(point.pep._repeated) <= 3
