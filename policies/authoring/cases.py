"""Test cases: a message, its circumstances and the expected decision; as lines of JSON.

    document   cond (+ effect) | rules (+ target) | policies | sets, with alg, set_alg, pobl, sobl;
               none of them: the case is about the document it is stored with
    message    msg (keys that differ from the base message), user and idp of its sender
    around     now, pip (values given instead of looked up), groups, direction, before (a message
               evaluated first)
    expected   expect, deliver, auth, obligations, delivered (the body after rewriting)

Rules
- Only here the identity in a message body is trusted.
- A document in a case may have unknown attributes, which then cannot be evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from msgnode.core import messages
from msgnode.core.decision import Direction
from msgnode.core.errors import NodeError
from msgnode.core.identity import Identity, Speaker
from policies.enforcement.defaults import Defaults, rewrites_of, verdict
from policies.engine.attributes import Facts, Surroundings
from policies.engine.combining import Outcome
from policies.engine.documents import read_document
from policies.engine.language import PolicyError
from policies.engine.pdp import Snapshot, compile_sets
from policies.engine.rewriting import rewritten

NOON = "2017-03-15T12:00:00"
BASE: dict[str, Any] = {
    "id": 1,
    "type": "create",
    "from": "hyperty://a.com/1",
    "to": "hyperty://b.com/2",
    "body": {},
}
_WORDS = {"expect": "the decision", "deliver": "whether it goes on", "auth": "body.auth"}
DOCUMENT_KEYS = ("cond", "rules", "policies", "sets")


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What became of a case; `faults` is empty if all was as expected."""

    id: str
    outcome: Outcome | None
    faults: tuple[str, ...]


def run_case(
    case: Mapping[str, Any],
    snapshot: Snapshot | None = None,
    defaults: Defaults | None = None,
) -> CaseResult:
    """Evaluate one case, against its own document or else `snapshot`."""
    name = str(case.get("id", "?"))
    try:
        if any(key in case for key in DOCUMENT_KEYS):
            snapshot = compile_sets(read_document(document_of(case), forced=True))
        if snapshot is None:
            return CaseResult(name, None, ("the case has no document of its own",))
        if "before" in case:
            snapshot.decide(facts_of({**case, "user": None, "msg": {}, **case["before"]}))
        facts = facts_of(case)
        outcome = snapshot.decide(facts)
    except (PolicyError, NodeError, ValueError, TypeError, AttributeError) as error:
        return CaseResult(name, None, (str(error),))
    return CaseResult(name, outcome, tuple(_faults(case, facts, outcome, defaults or Defaults())))


def document_of(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The document of a case, from its short forms."""
    algorithm = {"ruleCombiningAlgorithm": case["alg"]} if "alg" in case else {}
    set_algorithm = case.get("set_alg", case.get("alg"))
    around = {"policyCombiningAlgorithm": set_algorithm} if set_algorithm else {}
    if "sobl" in case:
        around["obligations"] = case["sobl"]
    if "target" in case:
        around["target"] = case["target"]
    if "sets" in case:
        return [{**around, **one} for one in case["sets"]]
    if "policies" in case:
        policies = [{**algorithm, **policy} for policy in case["policies"]]
        return [{**around, "policies": policies}]
    rules = case.get("rules")
    if rules is None:
        rules = [{"effect": case.get("effect", "permit"), "condition": case["cond"]}]
    policy: dict[str, Any] = {"rules": rules, **algorithm}
    if "pobl" in case:
        policy["obligations"] = case["pobl"]
    return [{**around, "policies": [policy]}]


def facts_of(case: Mapping[str, Any]) -> Facts:
    """The facts of a case's message."""
    raw = {**BASE, **case.get("msg", {})}
    if case.get("user"):
        identity = {"userProfile": {"username": case["user"]}, "idp": case.get("idp", "google.com")}
        raw["body"] = {**raw["body"], "identity": identity}
    message = messages.parse(msgspec.json.encode(raw))
    speaker = Speaker("case", "", identity=_believed(raw["body"].get("identity"), case))
    now = datetime.fromisoformat(case.get("now", NOON))
    around = Surroundings(now=lambda: now, node=case.get("node", {}))
    direction = Direction(case.get("direction", "in"))
    facts = Facts(message, speaker, direction, message.recipients[0], around)
    facts.set_values({"addrAllastMin": 0, **case.get("pip", {})})
    return facts


def _believed(identity: Any, case: Mapping[str, Any]) -> Identity | None:
    if not isinstance(identity, dict):
        return None
    profile = identity.get("userProfile")
    username = profile.get("username") if isinstance(profile, dict) else None
    idp = identity.get("idp")
    return Identity(
        issuer=idp if isinstance(idp, str) else "",
        subject="",
        username=username if isinstance(username, str) else "",
        groups=tuple(case.get("groups", ())),
    )


def _faults(
    case: Mapping[str, Any], facts: Facts, outcome: Outcome, defaults: Defaults
) -> list[str]:
    passes, auth = verdict(outcome.effect, defaults)
    found: list[tuple[str, Any]] = [
        ("expect", outcome.effect.value),
        ("deliver", passes),
        ("auth", auth),
    ]
    if "obligations" in case:
        found.append(
            (
                "obligations",
                [[obligation.name, obligation.value] for obligation in outcome.obligations],
            )
        )
    if "delivered" in case:
        body = rewritten(facts.message.fields(), rewrites_of(outcome))
        claimed = ("auth", "assertedIdentity")
        body = {key: value for key, value in body.items() if key not in claimed}
        found.append(("delivered", {**body, "auth": auth}))
    faults = [
        f"{_WORDS.get(key, key)} is {value!r}, expected {case[key]!r}"
        for key, value in found
        if key in case and case[key] != value
    ]
    return [*faults, *outcome.errors] if faults else faults
