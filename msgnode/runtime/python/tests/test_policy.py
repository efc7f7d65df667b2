"""Local policies: the node's own cases, and what they do on the bus."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from msgnode.runtime.python.message_bus import MessageBus
from msgnode.runtime.python.messages import Message
from msgnode.runtime.python.policy import PolicyEngine, identity_of, policy_handler
from policies.authoring.cases import BASE, NOON, document_of
from policies.engine.documents import read_document
from policies.engine.language import PolicyError
from policies.engine.pdp import compile_sets

CASES = Path(__file__).parents[4] / "tests" / "policies" / "cases.jsonl"


def engine_of(case: dict[str, Any]) -> PolicyEngine:
    now = datetime.fromisoformat(case.get("now", NOON))
    engine = PolicyEngine([], now=lambda: now)
    snapshot = compile_sets(read_document(document_of(case), forced=True))
    engine._snapshot = replace(engine._snapshot, enforced=snapshot)
    return engine


def judged(engine: PolicyEngine, case: dict[str, Any]) -> Any:
    message = {**BASE, **case.get("msg", {})}
    body = dict(message["body"])
    said = body.get("identity")
    if case.get("user"):
        said = {"userProfile": {"username": case["user"]}, "idp": case.get("idp", "google.com")}
        body["identity"] = said
    identity = identity_of(said)
    if identity is not None:
        identity = replace(identity, idp_domain="", groups=tuple(case.get("groups", ())))
    message["body"] = body
    given = {"addrAllastMin": 0, **case.get("pip", {})}
    return engine.decide(message, case.get("direction", "in"), identity, given)


@pytest.mark.parametrize(
    "case",
    [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines() if line.strip()],
    ids=lambda case: str(case.get("id")),
)
def test_the_cases_of_the_policy_language_hold_in_a_runtime(case: dict[str, Any]) -> None:
    if "node" in case:
        pytest.skip("asks for settings of a node")
    engine = engine_of(case)
    if "before" in case:
        judged(engine, {**case, "user": None, "msg": {}, **case["before"]})
    decision = judged(engine, case)
    expected = {key: case[key] for key in ("expect", "auth", "deliver") if key in case}
    found = {"expect": decision.effect.value, "auth": decision.auth, "deliver": decision.passes}
    assert {key: found[key] for key in expected} == expected
    if "obligations" in case:
        told = [[obligation.name, obligation.value] for obligation in decision.obligations]
        assert told == case["obligations"]


class Out:
    def __init__(self) -> None:
        self.sent: list[Message] = []

    def send(self, message: Message, size: int, stub: str) -> str:
        self.sent.append(message)
        return "runtime://d/protostub/1"


DOCUMENT = json.dumps(
    [
        {
            "policies": [
                {
                    "rules": [
                        {
                            "condition": {"dstSPDomain": {"equals": "bad.example"}},
                            "effect": "deny",
                            "obligations": [{"inform": "That domain is not for you."}],
                        }
                    ]
                }
            ]
        }
    ]
)


async def test_a_policy_blocks_what_goes_out_and_says_why() -> None:
    out = Out()
    bus = MessageBus("runtime://d/1", out)
    bus.pipeline_out.use(policy_handler(PolicyEngine(DOCUMENT)))
    asked = {"type": "create", "from": "hyperty://d/a", "to": "hyperty://bad.example/x"}
    answer = await bus.request(asked)
    assert answer["body"]["code"] == 403
    assert answer["body"]["desc"] == "That domain is not for you."
    bus.post_message({**asked, "to": "hyperty://good.example/x"})
    await asyncio.sleep(0)
    assert [each["to"] for each in out.sent] == ["hyperty://good.example/x"]


def test_a_document_that_is_wrong_is_refused_by_name() -> None:
    with pytest.raises(PolicyError, match="effect"):
        PolicyEngine(DOCUMENT.replace("deny", "perhaps"))
    with pytest.raises(PolicyError, match="JSON"):
        PolicyEngine("{")


def test_a_rate_limit_counts_and_refuses() -> None:
    rule = {"effect": "permit", "obligations": [{"rateLimit": {"rate.msgFrom.minute": 2}}]}
    engine = PolicyEngine([{"policies": [{"rules": [rule]}]}])
    codes = [engine.decide(dict(BASE), "out").passes for _ in range(3)]
    assert codes == [True, True, False]
    assert engine.decide(dict(BASE), "out").code == 429
