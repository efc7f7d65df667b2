"""Which messages are traced, what is kept of them, and that the others pay nothing."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from msgnode.bus.trace import TracePart
from msgnode.core.decision import Decision, Effect
from msgnode.core.record import Outcome
from msgnode.core.token_bucket import TokenBucket
from msgnode.monitoring import tracer as tracing
from msgnode.monitoring.tracer import TraceFilter, Tracer
from tests.fakes import FakeCaller, FakeEnforcer
from tests.stage.bus import ONE, TOKEN, TWO, Scene

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"
ALL = TraceFilter()
DENY = Decision(Effect.DENY, passes=False, auth=False, deciding=("set", "policy", "rule"))


def tracer_of(scene: Scene, **more: Any) -> Tracer:
    tracer = Tracer(
        scene.pipeline,
        "here:1",
        lambda body: body,
        lambda message, speaker: [{"label": "x"}],
        **more,
    )
    tracer.start()
    return tracer


def parts(tracer: Tracer, wanted: TraceFilter = ALL, after: int = -1) -> list[dict[str, Any]]:
    return [json.loads(each) for each in tracer.ask(wanted, after).parts]


def names(part: dict[str, Any]) -> list[str]:
    return [span["name"] for span in part["spans"]]


async def test_while_nobody_asks_the_pipeline_has_no_tracer() -> None:
    scene = Scene()
    tracer = tracer_of(scene)
    assert scene.pipeline.tracer is None
    tracer.ask(ALL)
    assert scene.pipeline.tracer is tracer


async def test_a_watch_that_nobody_asks_for_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "PATIENCE", -1.0)
    scene = Scene()
    tracer = tracer_of(scene)
    tracer.ask(ALL)
    tracer.turn()
    assert scene.pipeline.tracer is None


async def test_a_message_that_is_watched_is_shown_with_its_steps() -> None:
    scene = Scene(enforcer=FakeEnforcer())
    tracer = tracer_of(scene)
    tracer.ask(ALL)
    scene.say(body={"value": 1})
    (part,) = parts(tracer)
    assert names(part) == ["create", "admission", "policies in", "route", "policies out", "deliver"]
    assert (part["why"], part["outcome"], part["worker"]) == ("watched", "delivered", "here:1")
    assert part["spans"][-1]["facts"]["result"] == "written"
    assert part["body"] == {"value": 1}
    whole = part["spans"][0]
    assert all(span["parent"] == whole["id"] for span in part["spans"][1:])
    assert whole["seconds"] >= part["spans"][-1]["seconds"]
    assert len(scene.target.frames) == 1
    assert scene.row().outcome is Outcome.DELIVERED
    assert len(scene.tapped) == 1  # who looks on sees it once


def facts(part: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [span["facts"] for span in part["spans"] if span["name"] == name]


async def test_a_senders_own_traceparent_is_kept_if_tracing_is_on() -> None:
    scene, sent = Scene(), list[TracePart]()
    tracer_of(scene, export=sent.append)
    scene.say(traceparent=SAMPLED)
    scene.say(traceparent=UNSAMPLED)
    scene.say(traceparent="nonsense")
    scene.say()
    (part,) = sent
    assert (part.why, part.trace, part.parent) == ("sender", TRACE, SPAN)
    assert all(json.loads(frame).get("body") == {"auth": False} for frame in scene.target.frames)
    assert json.loads(scene.target.frames[0])["traceparent"] == SAMPLED


async def test_a_traceparent_may_come_in_a_header_of_the_senders_protocol() -> None:
    scene, sent = Scene(), list[TracePart]()
    tracer_of(scene, export=sent.append)
    scene.caller.traceparent = SAMPLED
    scene.say()
    assert [part.trace for part in sent] == [TRACE]


async def test_one_of_so_many_is_traced() -> None:
    scene, sent = Scene(), list[TracePart]()
    tracer_of(scene, ratio=1.0, export=sent.append)
    scene.say()
    assert [part.why for part in sent] == ["sampled"]


async def test_a_response_is_part_of_the_trace_of_its_request() -> None:
    scene = Scene()
    tracer = tracer_of(scene)
    tracer.ask(TraceFilter(type="create"))
    scene.say()
    answerer = FakeCaller(scene.target)
    frame = {"id": 1, "type": "response", "from": TWO, "to": ONE, "body": {"code": 200}}
    scene.pipeline.carry(json.dumps(frame).encode(), answerer)
    asked, response = parts(tracer)
    assert (response["why"], response["trace"]) == ("response", asked["trace"])
    assert response["parent"] == asked["spans"][0]["id"]
    assert response["outcome"] == "delivered"


async def test_a_refusal_is_shown_with_the_rule_and_its_tree() -> None:
    scene = Scene(enforcer=FakeEnforcer(**{"in": DENY}))
    tracer = tracer_of(scene)
    tracer.ask(TraceFilter(outcome="blocked"))
    scene.say()
    (part,) = parts(tracer, TraceFilter(outcome="blocked"))
    assert (part["outcome"], part["code"], part["rule"]) == ("blocked", 403, "rule")
    assert part["tree"] == [{"label": "x"}]
    assert part["spans"][0]["is_error"]
    assert scene.codes == [403]


async def test_the_recipients_of_a_list_are_one_trace() -> None:
    scene = Scene()
    tracer = tracer_of(scene)
    tracer.ask(ALL)
    scene.say(to=[TWO, "hyperty://localhost/nobody"])
    (part,) = parts(tracer)
    assert part["outcome"] == "undeliverable"
    assert names(part).count("route") == 2


async def test_more_than_may_be_traced_are_carried_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracing, "TokenBucket", partial(TokenBucket, clock=lambda: 0.0))
    scene = Scene()
    tracer = tracer_of(scene)
    tracer.ask(ALL)
    for _ in range(tracing.MOST_A_SECOND * 3):
        scene.say("update", f"{TWO}/status")
    told = tracer.ask(ALL)
    assert len(scene.target.frames) == 3 * tracing.MOST_A_SECOND
    assert (told.number, told.untraced) == (tracing.MOST_A_SECOND, 2 * tracing.MOST_A_SECOND)


async def test_each_is_told_once_and_only_what_is_wanted() -> None:
    scene = Scene()
    tracer = tracer_of(scene)
    to_two, reads = TraceFilter(address=TWO), TraceFilter(type="read")
    first = tracer.ask(to_two).number
    tracer.ask(reads)
    scene.say()
    assert len(parts(tracer, to_two, first)) == 1
    assert parts(tracer, reads, first) == []
    assert parts(tracer, to_two, tracer.ask(to_two).number) == []
    assert parts(tracer, TraceFilter(user="somebody")) == []


async def test_a_token_is_nowhere_in_a_trace() -> None:
    scene = Scene()
    tracer = tracer_of(scene)
    tracer.ask(ALL)
    scene.say(**{"from": f"{ONE}/{TOKEN}"})
    scene.say("open", "mn:/session", **{"from": f"{ONE}/{TOKEN}"})
    assert TOKEN not in json.dumps(parts(tracer))


async def test_what_another_worker_traces_goes_on_here() -> None:
    scene = Scene()
    tracer = tracer_of(scene)
    frame = json.dumps({"id": 7, "type": "read", "from": ONE, "to": TWO, "body": {}}).encode()
    tracer.arrived(SAMPLED, frame, scene.target, scene.target.taken, "there:2")
    tracer.arrived("nonsense", frame, scene.target, scene.target.taken, "there:2")
    (part,) = parts(tracer)
    assert (part["why"], part["trace"], part["parent"]) == ("link", TRACE, SPAN)
    assert part["spans"][0]["facts"]["from worker"] == "there:2"
    response = {"id": 7, "type": "response", "from": TWO, "to": ONE, "body": {"code": 200}}
    scene.pipeline.carry(json.dumps(response).encode(), FakeCaller(scene.target))
    assert [each["trace"] for each in parts(tracer)] == [TRACE, TRACE]


async def test_traces_are_forgotten_after_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    tracer = tracer_of(scene)
    tracer.ask(ALL)
    scene.say()
    monkeypatch.setattr(tracing, "KEPT_SECONDS", -1.0)
    tracer.turn()
    assert parts(tracer) == []
