"""Policies in a worker: versions taken, kept when the database is away, subscriptions ended."""

from __future__ import annotations

import asyncio
import threading

import pytest
from django.db import OperationalError

from msgnode.bus.table import RoutingTable
from msgnode.core.faults import FAULTS
from msgnode.core.identity import Identity, Speaker
from msgnode.core.pending import Pending
from msgnode.policy import service
from msgnode.policy.service import NodeAttributeSource, PolicyService
from policies.enforcement import prp
from policies.enforcement.snapshot import make_snapshot
from policies.engine.attributes import Facts
from policies.engine.language import CannotEvaluate, ObligationExpression
from tests import waiting
from tests.policies.test_pep import IN, parsed


class Listener:
    """A session as the table sees it."""

    token = b""
    is_connected = True

    def __init__(self, name, identity=None):
        self.id = name
        self.runtime_url = f"runtime://localhost/{name}"
        self.speaker = Speaker(name, self.runtime_url, identity=identity)


class Writer:
    """Takes changes and applies none."""

    def __init__(self):
        self.submitted = []

    def submit(self, *changes, result=None):
        self.submitted.extend(changes)


BOB = Listener("bob", Identity("google", "1", "bob@a.com"))
FEED, OTHER = "comm://localhost/feed/changes", "comm://localhost/other/changes"


def deny_feed(number):
    rule = {"effect": "deny", "condition": {"subscribeTo": {"contains": FEED}}}
    return make_snapshot([{"policies": [{"rules": [rule]}]}], {}, number)


def deny_everything():
    return [{"policies": [{"rules": [{"effect": "deny"}]}]}]


@pytest.fixture
def ended():
    return []


@pytest.fixture
def alarms():
    return []


@pytest.fixture
def told_of_gaps():
    return []


@pytest.fixture
def heard():
    return [FEED, OTHER]


@pytest.fixture
def policy(heard, ended, alarms, told_of_gaps):
    return PolicyService(
        RoutingTable(),
        Writer(),
        lambda *alarm: alarms.append(alarm),
        lambda: [BOB],
        lambda session: heard,
        lambda address, session: ended.append((address, session)),
        told_of_gaps.append,
        lambda *task: None,
    )


async def turn_in_which(is_so):
    while not is_so():  # noqa: ASYNC110 (turns of the loop are what is counted)
        await asyncio.sleep(0)


async def test_a_publication_is_taken_and_ends_what_it_does_not_allow(
    policy, ended, told_of_gaps, monkeypatch
):
    monkeypatch.setattr(prp, "active_sets", lambda known: deny_feed(1) if known < 1 else None)
    watching = asyncio.create_task(policy.watch())
    policy.published({"version": 1})
    await waiting.so(lambda: told_of_gaps)
    watching.cancel()
    assert policy.enforcer.snapshot.version == 1
    assert ended == [(FEED, BOB)]
    assert told_of_gaps == [BOB.id]


async def test_who_is_somebody_else_now_is_told_of_a_gap_if_a_subscription_ends(
    policy, ended, told_of_gaps
):
    policy.enforcer.snapshot = deny_feed(1)
    policy.decide_again_for(BOB)
    assert ended == [(FEED, BOB)]
    assert told_of_gaps == [BOB.id]
    policy.enforcer.snapshot = make_snapshot([], {}, 2)
    policy.decide_again_for(BOB)
    assert told_of_gaps == [BOB.id]


async def test_with_the_database_away_the_last_edition_stays_and_reading_is_tried_again(
    policy, monkeypatch, caplog
):
    calls = []

    def active_sets(known):
        calls.append(known)
        if len(calls) < 3:
            raise OperationalError("gone")
        return deny_feed(8)

    policy.enforcer.snapshot = deny_feed(7)
    monkeypatch.setattr(prp, "active_sets", active_sets)
    watching = asyncio.create_task(policy.watch())
    policy.published({})
    await waiting.so(lambda: len(calls) == 1)
    assert policy.enforcer.snapshot.version == 7
    await waiting.so(lambda: policy.enforcer.snapshot.version == 8)
    watching.cancel()
    assert calls[:3] == [7, 7, 7]
    assert "the last ones stay: gone" in caplog.text


async def test_subscriptions_are_decided_again_in_turns_and_others_work_between(
    policy, heard, ended, told_of_gaps, monkeypatch
):
    monkeypatch.setattr(service, "_TURN", -1.0)
    heard[:] = [f"comm://localhost/{number}/changes" for number in range(20)] + [FEED]
    policy.enforcer.snapshot = deny_feed(1)
    deciding = asyncio.create_task(policy.decide_again())
    turns = 0
    while not deciding.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 20
    assert ended == [(FEED, BOB)]
    assert told_of_gaps == [BOB.id]


async def test_what_is_published_between_two_turns_decides_over_the_rest(
    policy, heard, ended, monkeypatch
):
    monkeypatch.setattr(service, "_TURN", -1.0)
    heard[:] = [OTHER] * 5 + [FEED]
    policy.enforcer.snapshot = make_snapshot(deny_everything(), {}, 1)
    deciding = asyncio.create_task(policy.decide_again())
    await turn_in_which(lambda: ended)
    policy.enforcer.snapshot = deny_feed(2)
    await deciding
    assert 1 <= ended.count((OTHER, BOB)) < 5
    assert ended[-1] == (FEED, BOB)


async def test_what_ends_between_two_turns_is_not_ended_again(
    policy, heard, ended, told_of_gaps, monkeypatch
):
    monkeypatch.setattr(service, "_TURN", -1.0)
    policy.enforcer.snapshot = make_snapshot(deny_everything(), {}, 1)
    deciding = asyncio.create_task(policy.decide_again())
    await turn_in_which(lambda: ended)
    heard.clear()
    await deciding
    assert ended == [(FEED, BOB)]
    assert told_of_gaps == [BOB.id]


async def test_a_failure_is_kept_to_its_subscription(policy, ended, told_of_gaps, monkeypatch):
    drop = policy._drop

    def fail_once(address, session):
        if address == FEED:
            raise OSError("no")
        drop(address, session)

    monkeypatch.setattr(policy, "_drop", fail_once)
    before = FAULTS.counts["subscription"]
    policy.enforcer.snapshot = make_snapshot(deny_everything(), {}, 1)
    await policy.decide_again()
    assert ended == [(OTHER, BOB)]
    assert FAULTS.counts["subscription"] == before + 1


async def test_without_policies_no_subscription_is_looked_at(policy, ended):
    await policy.decide_again()
    assert ended == []


async def test_an_error_in_a_policy_raises_an_alarm(policy, alarms):
    broken = {"effect": "deny", "condition": {"msgTo": {"moreThan": 1}}}
    policy.enforcer.snapshot = make_snapshot([{"policies": [{"rules": [broken]}]}], {}, 1)
    assert not policy.enforcer.subscriptions_of(BOB.runtime_url, "domain://m/sm")(FEED, BOB.speaker)
    policy.enforcer.enforce(parsed(), BOB.speaker, IN)
    policy.write_down()
    assert [kind for kind, _, _ in alarms] == ["policy-indeterminate"]


def test_the_directory_knows_who_holds_an_address():
    table = RoutingTable()
    table.allocate("hyperty://localhost/1", BOB)
    directory = NodeAttributeSource(table)
    assert directory.identity_of("hyperty://localhost/1").username == "bob@a.com"
    assert directory.runtime_of("hyperty://localhost/1") == BOB.runtime_url
    assert directory.identity_of("hyperty://localhost/2") is None
    assert directory.runtime_of("hyperty://localhost/2") is None


def test_the_directory_knows_which_messages_leave_for_another_node():
    table = RoutingTable()
    directory = NodeAttributeSource(table)
    theirs, visitors = "hyperty://b.example/1", "hyperty://b.example/2"
    assert directory.peer_of(theirs) is None
    table.peers["b.example"] = BOB.runtime_url
    assert directory.peer_of(theirs) is None, "its node is not connected"
    table.add_runtime(BOB)
    table.allocate(visitors, BOB)
    assert directory.peer_of(theirs) == "b.example"
    assert directory.way_of("b.example") == "node"
    table.legacy = frozenset({"b.example"})
    assert directory.way_of("b.example") == "legacy"
    assert directory.peer_of(visitors) is None, "somebody here has it"
    table.learn(theirs, BOB)
    assert directory.peer_of(theirs) == "b.example", "who has written from there is there"
    table.learn(theirs, Listener("alice", None))
    assert directory.peer_of(theirs) is None, "it was learned of somebody here"
    assert directory.peer_of("hyperty://localhost/1") is None


USER = "user://a.com/bob"


def entered(*answers):
    """A directory whose registry gives these answers, the last one for ever; what it was asked."""
    asked = []

    def find(user):
        asked.append(user)
        answer = answers[min(len(asked), len(answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer() if callable(answer) else answer

    return NodeAttributeSource(RoutingTable(), find), asked


async def until_known(directory):
    known = asyncio.Event()
    with pytest.raises(Pending) as fact:
        directory.prepare(USER)
    fact.value.when_known(known.set)
    await asyncio.wait_for(known.wait(), 5)


async def test_registry_entries_are_fetched_once_and_then_at_hand():
    directory, asked = entered(["hyperty://localhost/1"])
    await asyncio.gather(until_known(directory), until_known(directory))
    directory.prepare(USER)
    assert directory.entries_of(USER) == ["hyperty://localhost/1"]
    assert asked == [USER]


async def test_a_registry_that_fails_is_given_up_for_a_while_and_then_asked_again(
    caplog, monkeypatch
):
    directory, asked = entered(OSError("away"), ["hyperty://localhost/1"])
    await until_known(directory)
    assert "away" in caplog.text
    directory.prepare(USER)  # not waited for again
    with pytest.raises(CannotEvaluate, match="could not be had"):
        directory.entries_of(USER)
    assert asked == [USER]
    monkeypatch.setattr(service, "FRESH", 0.0)
    await until_known(directory)
    assert directory.entries_of(USER) == ["hyperty://localhost/1"]


async def test_a_registry_that_does_not_answer_is_given_up_in_time(monkeypatch):
    monkeypatch.setattr(service, "LONGEST", 0.01)
    answers = threading.Event()
    directory, _ = entered(lambda: answers.wait(5) and ["hyperty://localhost/1"])
    try:
        await until_known(directory)
        directory.prepare(USER)
        with pytest.raises(CannotEvaluate):
            directory.entries_of(USER)
    finally:
        answers.set()


async def test_a_broker_that_does_not_answer_takes_one_thread_and_loses_nothing(
    policy, monkeypatch
):
    mail = ObligationExpression("emailto", "a@x.com", "R")
    reached, answers = [], threading.Event()

    def execute(obligations, is_last):
        reached.append(len(obligations))
        answers.wait(10.0)

    monkeypatch.setattr(policy._obligations, "execute", execute)
    facts = Facts(parsed(), Speaker("s", "runtime://localhost/s"), IN, "x", policy.enforcer.around)
    for _ in range(3):
        policy.enforcer.decision_buffer.do(mail, facts, "deny")
        policy.write_down()
    await waiting.so(lambda: reached)
    assert reached == [1]
    answers.set()
    while reached == [1]:
        await asyncio.sleep(0)
        policy.write_down()
    await waiting.so(lambda: len(reached) == 2)
    assert reached == [1, 2]


async def test_a_node_that_stops_writes_and_executes_what_is_left(policy, monkeypatch):
    deeds = []
    monkeypatch.setattr(
        policy._obligations, "execute", lambda some, is_last: deeds.append((len(some), is_last))
    )
    facts = Facts(parsed(), Speaker("s", "runtime://localhost/s"), IN, "x", policy.enforcer.around)
    policy.enforcer.snapshot = make_snapshot(deny_everything(), {}, 1)
    policy.enforcer.enforce(facts.message, facts.speaker, IN)
    policy.enforcer.decision_buffer.do(ObligationExpression("log", "seen"), facts, "deny")
    await policy.close()
    assert len(policy._writer.submitted) == 2, "an entry, and the hits of its rule"
    assert deeds == [(1, False), (0, True)]
