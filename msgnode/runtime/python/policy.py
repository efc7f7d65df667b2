"""Local policies: the user's own rules for what leaves his runtime and what comes in.

The language, the engine and its cases are the node's (docs/policies.md). The facts are the
runtime's: its own identity on the way out, and on the way in that of a message whose identity the
home node has verified.

    engine = PolicyEngine(document, domain="example.com")
    bus.pipeline_out.use(policy_handler(engine, identify))
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from msgnode.core import json_text
from msgnode.core.decision import Direction, Effect
from msgnode.core.identity import Identity, Origin, Speaker
from policies.enforcement.defaults import Defaults, rewrites_of, verdict
from policies.enforcement.pip import InformationPoint
from policies.enforcement.snapshot import make_snapshot
from policies.engine.attributes import Facts
from policies.engine.combining import Outcome
from policies.engine.language import ObligationExpression, PolicyError, Problem
from policies.engine.rewriting import rewritten
from policies.engine.vocabulary import RATE, WINDOWS

from .messages import Message, body_of
from .pipeline import Handler

BLOCKED = "Blocked by a policy of the runtime, on the way {}."
TOO_MANY = "Too many messages: a policy of the runtime limits them."

Identify = Callable[[Message, Mapping[str, str]], Identity | None]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """What becomes of a message. `body` replaces the message's own where it is not None."""

    effect: Effect
    passes: bool
    auth: bool
    code: int = 403
    desc: str = ""
    body: dict[str, Any] | None = None
    obligations: tuple[ObligationExpression, ...] = ()


class _Read:
    """A message as the engine's facts ask for it."""

    def __init__(self, message: Message) -> None:
        self._message = message
        self.sender = str(message.get("from") or "")
        self.type = str(message.get("type") or "")
        to = message["to"]
        self.recipients = (to,) if isinstance(to, str) else tuple(to)

    @property
    def id(self) -> bytes:
        return json.dumps(self._message["id"]).encode() if "id" in self._message else b""

    @property
    def frame(self) -> bytes:
        text = json.dumps(self._message, separators=(",", ":"), ensure_ascii=False)
        return text.encode(errors="replace")

    def fields(self) -> dict[str, Any]:
        return body_of(self._message)


class PolicyEngine:
    """Policies of one runtime, compiled.

    Args:
        document: policy sets, decoded or as JSON text.
        domain: what the attribute `domain` says.
        lists: named lists that conditions refer to.
        defaults: what holds where no rule decides.
        now: the clock that conditions on time look at.

    Raises:
        PolicyError: naming each fault of the document and where it is.
    """

    def __init__(
        self,
        document: str | Sequence[Any],
        domain: str = "",
        lists: Mapping[str, Sequence[str]] | None = None,
        defaults: Defaults | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        sets = _decoded(document) if isinstance(document, str) else document
        self._snapshot = make_snapshot(sets, lists or {})
        self._defaults = defaults or Defaults()
        self._information = InformationPoint()
        self._surroundings = self._information.surroundings(now, {"domain": domain})

    def decide(
        self,
        message: Message,
        direction: str,
        identity: Identity | None = None,
        given: Mapping[str, Any] | None = None,
    ) -> PolicyDecision:
        """Judge a message to one recipient.

        Args:
            message: the message.
            direction: "out" of this runtime, or "in".
            identity: the verified identity of the sender, if there is one.
            given: attributes whose values are taken as they are, instead of found out.
        """
        read = _Read(message)
        origin = Origin.RUNTIME if direction == "out" else Origin.FOREIGN
        speaker = Speaker("", "", origin, identity=identity)
        where = Direction(direction)
        facts = Facts(cast(Any, read), speaker, where, read.recipients[0], self._surroundings)
        facts.set_values(given or {})
        self._information.note(self._snapshot.counted, facts)
        return self._obeyed(self._snapshot.enforced.evaluate(facts), facts, direction)

    def _obeyed(self, outcome: Outcome, facts: Facts, direction: str) -> PolicyDecision:
        passes, auth = verdict(outcome.effect, self._defaults)
        code, desc, body = 403, "", None
        if passes and any(self._exceeds(obligation, facts) for obligation in outcome.obligations):
            passes, auth, code, desc = False, False, 429, TOO_MANY
        elif passes and (rewrites := rewrites_of(outcome)):
            try:
                body = rewritten(facts.message.fields(), rewrites)
            except (PolicyError, AttributeError, TypeError):
                log.exception("An obligation could not be carried out.")
                passes, auth = False, False
        for obligation in (*outcome.obligations, *outcome.advice):
            if obligation.name in ("inform", "info") and not passes:
                desc = desc or str(obligation.value)
            elif obligation.name == "log":
                log.info("%s: %s", outcome.effect.value, obligation.value)
        if not passes and not desc:
            desc = BLOCKED.format(direction)
        return PolicyDecision(outcome.effect, passes, auth, code, desc, body, outcome.obligations)

    def _exceeds(self, obligation: ObligationExpression, facts: Facts) -> bool:
        """Count a message under a rateLimit obligation; whether that is too many."""
        if obligation.name != "rateLimit":
            return False
        for name, limit in obligation.value.items():
            rate = RATE.fullmatch(name)
            value = facts[rate[1]] if rate else None
            if rate is None or not isinstance(value, str):
                return True  # a limit that cannot be kept lets nothing through
            key = (obligation.source, name, value)
            if self._information.rates.grant(key, WINDOWS[rate[2]], limit):
                return True
        return False


def policy_handler(engine: PolicyEngine, identify: Identify | None = None) -> Handler:
    """A pipeline handler that applies an engine; `identify` says who sends, if that is known."""

    def handle(message: Message, context: dict[str, str]) -> Message | None:
        identity = identify(message, context) if identify is not None else None
        decision = engine.decide(message, context["direction"], identity)
        if not decision.passes:
            return {"code": decision.code, "desc": decision.desc}
        return None if decision.body is None else {**message, "body": decision.body}

    return handle


def identity_of(said: Any) -> Identity | None:
    """The identity in a body, or the one that was given at log_in().

    Trusting it is the caller's affair.
    """
    if not isinstance(said, dict):
        return None
    profile = said.get("userProfile")
    profile = profile if isinstance(profile, dict) else {}
    username = profile.get("username") or said.get("username")
    idp = said.get("idp")
    idp = idp.get("domain") if isinstance(idp, dict) else idp
    if not isinstance(username, str) or not username:
        return None
    issuer = idp if isinstance(idp, str) else ""
    return Identity(issuer=issuer, subject="", username=username, idp_domain=issuer)


def _decoded(text: str) -> Sequence[Any]:
    try:
        raw = json_text.decode_document(text)
    except json_text.UnfitDocument as error:
        raise PolicyError([Problem("$", str(error))]) from None
    except (json_text.DecodeError, ValueError, RecursionError) as error:
        raise PolicyError([Problem("$", f"not JSON: {error}")]) from None
    return raw if isinstance(raw, list) else [raw]
