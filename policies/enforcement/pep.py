"""The enforcement point: implements the bus's Enforcer with the snapshot in force.

    enforce(message, speaker, direction)
      1 decide      evaluate the snapshot on fresh facts; a fault of ours is "indeterminate"
      2 shadow      what the sets in shadow mode would have changed
      3 limits      rateLimit obligations of a permit may still refuse
      4 rewriting   limit obligations of a permit; one that fails refuses
      5 afterwards  log and mail, off the message path
    subscriptions_of(...)  whether an existing subscription of a session is still allowed

Rules
- Synchronous, without I/O; raises nothing but Pending, inbound only, before anything is counted.
- A message that has passed inbound is not decided again outbound, unless a rule asks for the
  direction or the message has changed: the facts would be the same.
- A decision that passes, has no obligations and asked only for addresses, type and speaker is
  cached for messages with the same ones, or, if it asked only for domains, for all between these;
  but not while a counter or a set in shadow mode is in force. A new snapshot empties the cache.
- The sender is told no policy names, only the text of an `inform` obligation.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from time import perf_counter
from typing import Any

import msgspec

from msgnode.core import messages
from msgnode.core.decision import Decision, Direction, Effect, Obligation
from msgnode.core.errors import NodeError
from msgnode.core.identity import Origin, Speaker
from msgnode.core.messages import Message
from policies.engine.attributes import REPEATABLE, SHARED, Facts, origin_of
from policies.engine.combining import NOTHING, Outcome
from policies.engine.language import ObligationExpression, PolicyError
from policies.engine.rewriting import rewritten
from policies.engine.vocabulary import RATE, WINDOWS

from .decision_buffer import DecisionBuffer
from .defaults import Defaults, rewrites_of, verdict
from .pip import InformationPoint
from .snapshot import EMPTY_SNAPSHOT, PolicySnapshot

log = logging.getLogger(__name__)

_FAULT = Outcome(Effect.INDETERMINATE, "DP", errors=("a fault of the node, see its log",))
_TOO_MANY = "Too many messages"
MAX_REPEATED = 10_000

_Key = tuple[object, object, str, int]


class PolicyEnforcer:
    """One instance per worker. Its snapshot is swapped by assignment."""

    def __init__(
        self,
        information: InformationPoint,
        decision_buffer: DecisionBuffer,
        defaults: Defaults,
        now: Callable[[], datetime],
        node: Mapping[str, Any],
    ) -> None:
        self.information = information
        self.decision_buffer = decision_buffer
        self.defaults = defaults
        self.around = information.surroundings(now, node)
        self._snapshot = EMPTY_SNAPSHOT
        self.evaluated = 0  # decisions evaluated; the others were cached
        self._known: dict[tuple[str, ...], Decision] = {}
        self._repeated: dict[_Key, tuple[Decision, list[int], Speaker]] = {}
        self._judged: Message | None = None
        self.snapshot = EMPTY_SNAPSHOT

    @property
    def snapshot(self) -> PolicySnapshot:
        """The snapshot in force."""
        return self._snapshot

    @snapshot.setter
    def snapshot(self, snapshot: PolicySnapshot) -> None:
        passes, auth = verdict(Effect.NOT_APPLICABLE, self.defaults)
        self._nothing = Decision(Effect.NOT_APPLICABLE, passes, auth, version=snapshot.version)
        self._known, self._repeated = {}, {}
        self._judged, self._judgement = None, self._nothing
        self._is_empty = snapshot.is_empty
        self._judges_once = not snapshot.uses_direction
        self._may_repeat = not snapshot.counted and snapshot.shadow is None
        self._snapshot = snapshot

    @property
    def is_idle(self) -> bool:
        """Whether every message passes without evaluation."""
        return self._snapshot.is_empty and self.defaults.deliver_not_applicable

    def enforce(self, message: Message, speaker: Speaker, direction: Direction) -> Decision:
        """Decide on a message with one recipient, else on its first."""
        if direction is Direction.OUT and self._judged is message:
            return self._judgement
        if self._is_empty:
            return self._nothing
        to = message.recipients[0]
        sender, type_ = message.sender, message.type
        between = (origin_of(sender), origin_of(to), type_, id(speaker))
        known = self._repeated.get(between)
        if known is None:
            key: _Key = (sender, to, type_, id(speaker))
            known = self._repeated.get(key)
        if known is not None and self.decision_buffer.left > 1:
            self.decision_buffer.left -= 1
            decision, hits, _ = known
            hits[0] += 1
        else:
            facts = Facts(message, speaker, direction, to, self.around)
            decision = self._judge(facts, between)
        if direction is Direction.IN and self._judges_once:
            self._judged, self._judgement = message, decision
        return decision

    def _judge(self, facts: Facts, between: _Key) -> Decision:
        """Decide on fresh facts; log the decision, and cache it if it can be repeated."""
        began = perf_counter()
        self.evaluated += 1
        snapshot = self._snapshot
        if snapshot.fetched and facts.direction is Direction.IN:
            self.information.prepare(facts)
        if facts.direction is Direction.IN and snapshot.counted:
            self.information.note(snapshot.counted, facts)
        outcome = self._decide(snapshot.enforced.evaluate, facts)
        decision = self._decision(outcome, facts)
        hits = self.decision_buffer.hits_of(outcome.deciding)
        hits[0] += bool(outcome.deciding)
        if (
            decision.passes
            and not (outcome.obligations or outcome.advice or outcome.errors)
            and self._may_repeat
            and facts.keys() <= REPEATABLE
        ):
            if len(self._repeated) >= MAX_REPEATED:
                self._repeated.clear()
            key = between
            if not facts.keys() <= SHARED:
                key = (facts.message.sender, facts.to, *between[2:])
            self._repeated[key] = (decision, hits if outcome.deciding else [0], facts.speaker)
        shadow = self._shadow(snapshot, facts, decision)
        if shadow or self.decision_buffer.is_due(outcome.effect, decision.passes):
            self.decision_buffer.note(facts, outcome, decision, shadow, perf_counter() - began)
        return decision

    def subscriptions_of(self, runtime_url: str, manager: str) -> Callable[[str, Speaker], bool]:
        """A function that tells whether a session may (still) subscribe to an address.

        A decision that asked only for the two parties is reused for the session's other addresses,
        until the snapshot or its speaker changes.
        """
        shared: tuple[PolicySnapshot, Speaker, bool] | None = None

        def allows(address: str, speaker: Speaker) -> bool:
            nonlocal shared
            snapshot = self._snapshot
            if shared is not None and shared[0] is snapshot and shared[1] is speaker:
                return shared[2]
            facts = self._subscribing(runtime_url, manager, address, speaker)
            outcome = self._decide(snapshot.enforced.evaluate, facts)
            passes = verdict(outcome.effect, self.defaults)[0]
            is_shared = outcome is not _FAULT and facts.keys() <= REPEATABLE
            shared = (snapshot, speaker, passes) if is_shared else None
            return passes

        return allows

    def _subscribing(self, runtime_url: str, manager: str, address: str, speaker: Speaker) -> Facts:
        """The facts of a subscription, as if it were requested now."""
        body = {"resource": address, "resources": [address], "subscribe": [address]}
        raw = {"id": 0, "type": "subscribe", "from": f"{runtime_url}/sm", "to": manager}
        message = messages.parse(msgspec.json.encode({**raw, "body": body}))
        return Facts(message, speaker, Direction.IN, manager, self.around)

    def _decide(self, evaluate: Callable[[Facts], Outcome], facts: Facts) -> Outcome:
        try:
            return evaluate(facts)
        except Exception:
            log.exception("A policy decision failed.")
            return _FAULT

    def _decision(self, outcome: Outcome, facts: Facts) -> Decision:
        if outcome is NOTHING:
            return self._nothing
        if not outcome.obligations and not outcome.errors and not outcome.advice:
            known = self._known.get((outcome.effect, *outcome.deciding))
            if known is None:
                known = self._new_decision(outcome)
                self._known[(outcome.effect, *outcome.deciding)] = known
            return known
        return self._obeyed(self._new_decision(outcome), outcome, facts)

    def _new_decision(self, outcome: Outcome) -> Decision:
        passes, auth = verdict(outcome.effect, self.defaults)
        return Decision(
            outcome.effect,
            passes,
            auth,
            outcome.deciding,
            tuple(_obligation(obligation) for obligation in outcome.obligations),
            outcome.errors,
            self._snapshot.version,
        )

    def _obeyed(self, decision: Decision, outcome: Outcome, facts: Facts) -> Decision:
        """Apply the obligations of a decision."""
        if decision.passes:
            if any(self._exceeds(obligation, facts) for obligation in outcome.obligations):
                decision = replace(decision, passes=False, auth=False, reason=_TOO_MANY, code=429)
            elif rewrites := rewrites_of(outcome):
                decision = _with_body(decision, rewrites, facts)
        again = facts.direction is Direction.OUT and facts.speaker.origin is not Origin.COMPONENT
        if again and decision.passes and not self._snapshot.uses_direction:
            return decision  # obligations were applied inbound
        for obligation in (*outcome.obligations, *outcome.advice):
            if obligation.name in ("inform", "info") and not decision.passes:
                decision = replace(decision, reason=decision.reason or str(obligation.value))
            elif obligation.name in ("log", "emailto", "inform", "info"):
                self.decision_buffer.do(obligation, facts, outcome.effect.value)
        return decision

    def _exceeds(self, obligation: ObligationExpression, facts: Facts) -> bool:
        """Count a message for a rateLimit obligation, once; return whether it exceeds the limit."""
        if obligation.name != "rateLimit":
            return False
        for name, limit in obligation.value.items():
            rate = RATE.fullmatch(name)
            value = facts[rate[1]] if rate else None
            if rate is None or not isinstance(value, str):
                return True  # a limit that cannot be checked lets nothing pass
            key, window = (obligation.source, name, value), WINDOWS[rate[2]]
            rates = self.information.rates
            if facts.direction is Direction.IN and rates.count(key, window) + 1 > limit:
                return True
            if facts.direction is Direction.IN:
                rates.note(key, window)
        return False

    def _shadow(self, snapshot: PolicySnapshot, facts: Facts, decision: Decision) -> str:
        """The decision with the sets in shadow mode, "" if it is the same."""
        if snapshot.shadow is None:
            return ""
        outcome = self._decide(snapshot.shadow.evaluate, facts)
        passes, _ = verdict(outcome.effect, self.defaults)
        if passes == decision.passes:
            return ""
        return f"{outcome.effect.value} by {'/'.join(outcome.deciding) or 'default'}"


def _obligation(obligation: ObligationExpression) -> Obligation:
    return Obligation(obligation.name, {"value": obligation.value, "source": obligation.source})


def _with_body(
    decision: Decision, rewrites: tuple[ObligationExpression, ...], facts: Facts
) -> Decision:
    try:
        before = facts.message.fields()
        after = rewritten(before, rewrites)
    except (NodeError, PolicyError, AttributeError, TypeError):
        log.exception("An obligation could not be carried out.")
        return replace(decision, passes=False, auth=False)
    if after is before or after == before:
        return decision
    return replace(decision, body=msgspec.json.encode(after))
