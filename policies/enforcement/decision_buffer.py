"""The decision buffer: log entries and obligations, kept off the message path.

The enforcement point puts entries and pending obligations (log lines, mails) into bounded memory;
the worker collects them every second.

Rules
- Every refusal and every error is an entry, also what a set in shadow mode would have done; of
  permits one in `sample`.
- When it is full the newest are dropped and counted. At most PER_SOURCE of one source address are
  kept, so that nobody's refusals can fill the log or displace another's.
- Bodies are masked: structure and scalars other than texts stay, texts are cut out, except for the
  few keys that tell what a message is about. If masking is off, tokens are still cut out.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from time import time
from typing import Any

import msgspec

from msgnode.core.decision import Decision, Effect
from msgnode.core.errors import NodeError
from msgnode.core.redaction import MASK, cut, without_tokens
from policies.engine.attributes import Facts
from policies.engine.combining import Outcome
from policies.engine.language import ObligationExpression
from policies.engine.vocabulary import RATE

MAX_ENTRIES = frozenset({"resource", "resources", "type", "method", "scheme", "number", "code"})
OF_SENDER = (
    *("srcUsername", "srcIDP", "srcIDPDomain", "srcGroups", "srcSession", "srcAddress"),
    *("srcOrigin", "srcRuntime"),
)
LOOKED_UP = frozenset(
    {"dstRuntime", "dstUsername", "userRegistries", "addrAllastMin", "peer", "peerWay", "hops"}
)
MAX_FACT = 1000
MAX_WAITING = 10_000
"""Most entries in memory until the next collection."""
PER_SOURCE = 100
"""Most entries, and most obligations, of one source address between two collections."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One decision for the log.

    `shadow` is the decision that sets in shadow mode would have made, `facts` what was known
    besides the message.
    """

    at: float
    direction: str
    effect: str
    passes: bool
    shadow: str
    path: str
    version: int
    type: str
    sender: str
    to: str
    username: str
    session: str
    message: str
    errors: str
    microseconds: float
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PendingObligation:
    """An obligation to execute after the decision."""

    obligation: ObligationExpression
    summary: str


class DecisionBuffer:
    """Bounded memory between the message path and the database.

    left     passing decisions until the next one that is logged
    """

    def __init__(self, sample: int = 1000, capacity: int = MAX_WAITING, masks: bool = True) -> None:
        self._sample = sample or sys.maxsize
        self._capacity = capacity
        self._masks = masks
        self.left = self._sample
        self.entries: list[Entry] = []
        self.pending_obligations: list[PendingObligation] = []
        self._of_source: Counter[tuple[str, str]] = Counter()
        self._hits: dict[tuple[str, ...], list[int]] = {}
        self.dropped = 0

    def hits_of(self, path: tuple[str, ...]) -> list[int]:
        """The hit counter of a rule: a list of one number, incremented in place."""
        found = self._hits.get(path)
        if found is None:
            found = self._hits[path] = [0]
        return found

    def is_due(self, effect: Effect, passes: bool) -> bool:
        """Whether a decision is to be logged: every refusal and error, one in `sample` others."""
        if not passes or effect is Effect.INDETERMINATE:
            return True
        self.left -= 1
        if self.left > 0:
            return False
        self.left = self._sample
        return True

    def note(
        self, facts: Facts, outcome: Outcome, decision: Decision, shadow: str, seconds: float
    ) -> None:
        """Keep an entry."""
        if not self._has_room(self.entries, "entry", facts):
            return
        message, identity = facts.message, facts.speaker.identity
        self.entries.append(
            Entry(
                at=time(),
                direction=facts.direction.value,
                effect=outcome.effect.value,
                passes=decision.passes,
                shadow=shadow,
                path="/".join(outcome.deciding),
                version=decision.version,
                type=cut(message.type),
                sender=cut(message.sender),
                to=cut(facts.to),
                username=identity.username if identity else "",
                session=facts.speaker.session_id,
                message=self._shown(facts),
                errors=cut("\n".join(outcome.errors)),
                microseconds=seconds * 1e6,
                facts=without_tokens(beside(facts)),
            )
        )

    def do(self, obligation: ObligationExpression, facts: Facts, effect: str) -> None:
        """Keep an obligation to be executed."""
        if not self._has_room(self.pending_obligations, "obligation", facts):
            return
        summary = f"{effect}: {facts.message.type} from {facts.message.sender} to {facts.to}"
        self.pending_obligations.append(PendingObligation(obligation, cut(summary)))

    def take(self) -> tuple[list[Entry], Counter[tuple[str, ...]]]:
        """Remove and return the entries and hits since the last call."""
        hits: Counter[tuple[str, ...]] = Counter()
        for path, counter in self._hits.items():
            if counter[0]:
                hits[path], counter[0] = counter[0], 0
        entries, self.entries = self.entries, []
        self._of_source.clear()
        return entries, hits

    def take_obligations(self) -> list[PendingObligation]:
        """Remove and return what is to be executed."""
        taken, self.pending_obligations = self.pending_obligations, []
        return taken

    def _has_room(self, kept: list[Any], kind: str, facts: Facts) -> bool:
        key = kind, facts.speaker.remote_address
        self._of_source[key] += 1
        if len(kept) < self._capacity and self._of_source[key] <= PER_SOURCE:
            return True
        self.dropped += 1
        return False

    def _shown(self, facts: Facts) -> str:
        message = facts.message
        try:
            body: Any = message.fields()
        except NodeError:
            body = {}
        shown = {
            "id": msgspec.Raw(cut((message.id or b"0").decode()).encode()),
            "type": cut(message.type),
            "from": cut(message.sender),
            "to": cut(facts.to),
            "body": masked(body) if self._masks else without_tokens(body),
        }
        return msgspec.json.encode(shown)[:20_000].decode(errors="ignore")


def beside(facts: Facts) -> dict[str, Any]:
    """The sender of the message, and what the decision has looked up, as of that moment."""
    looked_up = [name for name in facts if name in LOOKED_UP or RATE.fullmatch(name)]
    values = {name: facts[name] for name in (*OF_SENDER, *looked_up)}
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, (str, int, float, list, tuple)) and not _is_long(value)
    }


def _is_long(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) > MAX_FACT


def masked(value: Any, key: str = "") -> Any:
    """A value without its texts."""
    if isinstance(value, dict):
        return {cut(name): masked(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [masked(item, key) for item in value[:50]]
    if isinstance(value, str):
        return cut(value) if key in MAX_ENTRIES else MASK
    return value
