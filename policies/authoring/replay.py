"""Replays recorded messages against a draft: different decisions by rule, sender and hour.

The record has a message's type, its addresses and the runtime it came from: no body, no user, no
time to the second. If a decision needs more, under the draft or under the policies in force, it is
counted as unknown. Rate limits are not replayed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple, Protocol

import msgspec

from msgnode.core import addresses, messages
from msgnode.core.decision import Direction
from msgnode.core.envelope import InvalidFrame
from msgnode.core.identity import Speaker
from msgnode.core.message_types import TYPES
from policies.enforcement.defaults import Defaults, verdict
from policies.engine.attributes import Facts, Surroundings
from policies.engine.combining import Outcome
from policies.engine.pdp import Snapshot

REPLAYED = 5_000
"""Kinds of messages that are decided over, the most frequent."""
_ENDS = {
    *("msgFrom", "msgTo", "msgType", "actionType", "srcScheme", "dstScheme", "srcSPDomain"),
    *("dstSPDomain", "srcHyperty", "dstHyperty", "hyperty", "srcRuntime"),
}
_AT_ONCE = 100
_PAUSE = 0.001  # seconds, in which whoever else runs in this process goes on


class Said(Protocol):
    """Messages that are equal but for their bodies."""

    hour: datetime
    type: str
    sender: str
    to: str
    runtime: str


class Change(NamedTuple):
    """Messages that would be refused, and that would pass, and are not now."""

    name: str
    refused: int
    passed: int

    @property
    def both(self) -> int:
        """Messages that would fare otherwise."""
        return self.refused + self.passed


class Replay(NamedTuple):
    """What would be otherwise.

    looked_at    messages whose decision is told, changed or not
    unknown      messages of which the record does not say enough
    rules        by the rule that decides in the draft, or decided in what is in force
    """

    looked_at: int
    unknown: int
    refused: int
    passed: int
    rules: list[Change]
    senders: list[Change]
    hours: list[tuple[datetime, Change]]


def replay(
    kinds: Iterable[tuple[Said, int]], in_force: Snapshot, draft: Snapshot, defaults: Defaults,
    most: int = 20,
) -> Replay:  # fmt: skip
    """Decide over recorded messages twice, and tell the differences."""
    looked_at = unknown = 0
    refused: dict[str, Counter[str]] = {"rule": Counter(), "sender": Counter()}
    passed: dict[str, Counter[str]] = {"rule": Counter(), "sender": Counter()}
    hours: dict[datetime, list[int]] = {}
    for number, (said, count) in enumerate(kinds, 1):
        if number % _AT_ONCE == 0:
            time.sleep(_PAUSE)
        before, after = _decided(in_force, said), _decided(draft, said)
        if before is None or after is None:
            unknown += count
            continue
        looked_at += count
        of_hour = hours.setdefault(said.hour, [0, 0])
        was, would = (verdict(each.effect, defaults)[0] for each in (before, after))
        if was == would:
            continue
        rule = _rule(after) or _rule(before) or "no rule"
        kept = passed if would else refused
        kept["rule"][rule] += count
        kept["sender"][said.runtime or said.sender] += count
        of_hour[would] += count
    return Replay(
        looked_at,
        unknown,
        sum(refused["rule"].values()),
        sum(passed["rule"].values()),
        _changes(refused["rule"], passed["rule"], most),
        _changes(refused["sender"], passed["sender"], most),
        [(hour, Change("", *hours[hour])) for hour in sorted(hours)],
    )


def _decided(snapshot: Snapshot, said: Said) -> Outcome | None:
    """The decision, None if it asks for what the record does not say."""
    if said.type not in TYPES:
        return None
    frame = {"id": 0, "type": said.type, "from": said.sender, "to": said.to, "body": {}}
    try:
        message = messages.parse(msgspec.json.encode(frame))
    except InvalidFrame:
        return None
    speaker = Speaker("", said.runtime)
    facts = Facts(message, speaker, Direction.IN, said.to, Surroundings())
    outcome = snapshot.decide(facts)
    asked = {name.lstrip("=#") for name in facts}
    if addresses.parse(said.to).scheme in addresses.RUNTIME_SCHEMES:
        asked.discard("dstRuntime")
    return outcome if asked <= _ENDS else None


def _rule(outcome: Outcome) -> str:
    return "/".join(outcome.deciding)


def _changes(refused: Counter[str], passed: Counter[str], most: int) -> list[Change]:
    names = {*refused, *passed}
    found = [Change(name, refused[name], passed[name]) for name in names]
    return sorted(found, key=lambda each: (-each.both, each.name))[:most]
