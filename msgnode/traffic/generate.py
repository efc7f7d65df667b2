"""Generates traffic that looks like a domain's: for demonstrations, tests and measurements.

A few runtimes send much and many little; each has a handful of peers in its own and other domains;
days have a busy afternoon and weeks a quiet end; some messages are refused, blocked or reach
nobody; runtimes come and go from day to day. The same seed gives the same rows.
"""

from __future__ import annotations

import hashlib
import math
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from msgnode.core.record import ReservationEvent, SessionEvent, SessionRecord
from msgnode.traffic.columns import STORED, sessions_table

_FOREIGN = ("example.org", "example.net", "voice.example", "clinic.example", "school.example")
_LEGACY = ("telephone.example", "office.example")
_KINDS = (
    # share, type, outcome, component, code, effect, rule
    (0.460, "execute", "delivered", "", 0, "permit", "own-domain"),
    (0.180, "response", "delivered", "", 0, "permit", "own-domain"),
    (0.120, "update", "delivered", "", 0, "notApplicable", ""),
    (0.050, "subscribe", "answered", "subscriptions", 200, "permit", "own-domain"),
    (0.040, "create", "answered", "address-allocation", 200, "permit", "own-domain"),
    (0.060, "read", "answered", "domain-registry", 200, "permit", "registry-read"),
    (0.020, "open", "answered", "session", 200, "notApplicable", ""),
    (0.020, "execute", "queued", "", 0, "permit", "own-domain"),
    (0.020, "execute", "undeliverable", "", 404, "permit", "own-domain"),
    (0.006, "read", "undeliverable", "domain-registry", 504, "permit", "registry-read"),
    (0.012, "execute", "blocked", "", 403, "deny", "no-strangers"),
    (0.006, "subscribe", "blocked", "", 403, "deny", "members-only"),
    (0.004, "update", "refused", "", 429, "notApplicable", ""),
    (0.002, "execute", "dropped", "", 0, "permit", "own-domain"),
)
_CHURN = 0.05
_ENDINGS = (
    ("closed by its runtime", 1000), ("closed by its runtime", 1000), ("grace period over", 0),
    ("grace period over", 0), ("ended by the node", 4403),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """`rows` over the `days` that end at `end` (a full hour)."""

    rows: int
    days: int
    seed: int
    end: datetime
    domain: str = "example.com"

    @property
    def start(self) -> datetime:
        """When the first row may be."""
        return self.end - timedelta(days=self.days)

    @property
    def runtimes(self) -> int:
        """Runtimes active on one day."""
        return max(12, min(20_000, self.rows // self.days // 250))


def hours(plan: Plan) -> Iterator[tuple[datetime, pa.Table]]:
    """Each hour with its rows in order of time; hours without rows are left out."""
    who = _Directory(plan)
    begin = [plan.start + timedelta(hours=n) for n in range(plan.days * 24)]
    for number, (hour, rows) in enumerate(zip(begin, _shares(plan, begin), strict=True)):
        if rows:
            yield hour, _hour(plan, who, hour, rows, number)


def sessions(plan: Plan) -> Iterator[tuple[datetime, pa.Table]]:
    """Each hour with the rows of its sessions: opened, resumed, lost and ended."""
    who = _Directory(plan)
    at_once = max(1, plan.runtimes // 12)
    for number in range(plan.days * 24):
        hour = plan.start + timedelta(hours=number)
        draw = random.Random(f"{plan.seed}/{number}")  # noqa: S311 (made-up traffic)
        rows = [
            row
            for _ in range(at_once)
            for row in _session(draw, who, draw.randrange(who.total), hour.timestamp())
        ]
        rows.sort(key=lambda row: row.at)
        yield hour, sessions_table(rows, plan.domain, "w1")


def reservations(plan: Plan) -> Iterator[tuple[datetime, pa.Table]]:
    """Each hour with the rows of its reservations: made, refused, relayed and ended."""
    who = _Directory(plan)
    for number in range(plan.days * 24):
        hour = plan.start + timedelta(hours=number)
        draw = random.Random(f"{plan.seed}/{number}/reservations")  # noqa: S311 (made-up traffic)
        rows = [
            row
            for _ in range(max(1, plan.runtimes // 24))
            for row in _reservation(draw, who, draw.randrange(who.total), hour.timestamp())
        ]
        rows.sort(key=lambda row: row.at)
        yield hour, sessions_table(rows, plan.domain, "w1")


def _reservation(
    draw: random.Random, who: _Directory, number: int, begin: float
) -> Iterator[SessionRecord]:
    session, runtime = who.sessions[number].as_py(), who.runtimes[number].as_py()
    named, at = draw.choice(("audio", "video", "video", "data")), begin + draw.uniform(0, 1_800)
    if draw.random() < 0.15:
        code, event = draw.choice((503, 503, 403, 429)), ReservationEvent.REFUSED
        yield SessionRecord(at, session, runtime, event, named, code)
        return
    lasted = min(1_700.0, draw.lognormvariate(5, 1))
    yield SessionRecord(at, session, runtime, ReservationEvent.RESERVED, named, 200)
    for part in range(draw.randint(0, 4)):
        size = draw.randint(-1_000, 2_000_000_000)
        later = at + lasted * part / 4
        yield SessionRecord(later, "", "", ReservationEvent.RELAYED, named, size=size)
    reason = draw.choice(("released", "released", "expired", "unused", "exceeded", "lost"))
    yield SessionRecord(
        at + lasted, session, runtime, ReservationEvent.ENDED, reason, lasted=lasted
    )


def _session(
    draw: random.Random, who: _Directory, number: int, begin: float
) -> Iterator[SessionRecord]:
    """What a session leaves in an hour: it began some time before it ends."""
    session, runtime = who.sessions[number].as_py(), who.runtimes[number].as_py()
    at, lasted = begin + draw.uniform(0, 1_800), draw.lognormvariate(6, 1.5)
    resumptions = min(9, int(draw.expovariate(1.2)))
    yield SessionRecord(at, session, runtime, SessionEvent.OPENED)
    for _ in range(resumptions):
        at += draw.uniform(0, 120)
        code = draw.choice((0, 0, 0, 3001, 3008, 4409))
        yield SessionRecord(at, session, runtime, SessionEvent.LOST, "", code, lasted / 3)
        yield SessionRecord(at, session, runtime, SessionEvent.RESUMED)
    ending, code = draw.choice(_ENDINGS)
    yield SessionRecord(
        at + draw.uniform(0, 600), session, runtime, SessionEvent.ENDED, ending, code, lasted,
        resumptions,
    )  # fmt: skip


class _Directory:
    """All runtimes there ever are, by number: domain, runtime URL, session, sender, receiver."""

    def __init__(self, plan: Plan) -> None:
        self.total = plan.runtimes + math.ceil(plan.runtimes * _CHURN * plan.days)
        runtimes, sessions, senders, receivers = [], [], [], []
        for number in range(self.total):
            key = _key(plan.seed, number)
            at_home = number % 10 < 7
            domain = plan.domain if at_home else _FOREIGN[number // 10 % len(_FOREIGN)]
            runtimes.append(f"runtime://{domain}/{key}")
            sessions.append(str(_key(plan.seed, number, "session")))
            path = _key(plan.seed, number, "hyperty")
            senders.append(
                f"runtime://{domain}/{key}/sm" if number % 6 == 0 else f"hyperty://{domain}/{path}"
            )
            receivers.append(_receiver(number, domain, path))
        self.runtimes, self.sessions = pa.array(runtimes), pa.array(sessions)
        self.senders, self.receivers = pa.array(senders), pa.array(receivers)


def _receiver(number: int, domain: str, path: uuid.UUID) -> str:
    """Mostly a hyperty or data object; now and then a telephone, a P2P requester, a QoS service."""
    if number % 5 == 0:
        return f"comm://{domain}/{path}/changes"
    if number % 29 == 3:
        return f"sip:{path}@pbx.{_LEGACY[number % len(_LEGACY)]}"
    if number % 31 == 7:
        return f"runtime://{domain}/p2prequester/{path}"
    if number % 37 == 8:
        return f"domain://qos.{domain}"
    return f"hyperty://{domain}/{path}"


def _hour(plan: Plan, who: _Directory, hour: datetime, rows: int, number: int) -> pa.Table:
    def chance(column: int) -> pa.Array:
        return pc.random(rows, initializer=(plan.seed * 100_003 + number * 64 + column) % 2**63)

    oldest = int(plan.runtimes * _CHURN * (number // 24))
    speaker = pc.add(_whole(pc.multiply(pc.power(chance(0), 3.0), float(plan.runtimes))), oldest)
    hop = _whole(pc.multiply(pc.power(chance(1), 2.0), 6.0))
    peer = _modulo(pc.add(pc.multiply(speaker, 7), pc.multiply(pc.add(hop, 1), 13)), who.total)
    kind = _drawn(chance(2), [share for share, *_ in _KINDS])
    listeners = pc.add(_whole(pc.divide(1.0, pc.power(pc.add(chance(3), 0.02), 0.5))), 0)
    is_component = pc.not_equal(_of_kind(3, kind), "")
    reached = pc.is_in(_of_kind(2, kind), value_set=pa.array(["delivered", "answered", "queued"]))
    latency = pc.exp(pc.add(3.2, pc.add(chance(4), pc.power(pc.add(chance(5), 0.0), 8.0))))
    slow = pc.if_else(is_component, pc.multiply(latency, 60.0), latency)
    begin = int(hour.timestamp() * 1_000_000)
    at = pc.sort_indices(chance(6))
    moments = pc.add(begin, _whole(pc.multiply(chance(6).take(at), 3_599_999_999.0)))
    ids = pc.cast(pa.array(range(1, rows + 1)), pa.string())
    columns = {
        "at": pc.cast(moments, STORED.field("at").type),
        "node": pa.repeat(pa.scalar(plan.domain), rows),
        "worker": pa.repeat(pa.scalar("w1"), rows),
        "session": who.sessions.take(speaker),
        "runtime": who.runtimes.take(speaker),
        "id": ids,
        "type": _of_kind(1, kind),
        "sender": who.senders.take(speaker),
        "to": pc.if_else(
            is_component,
            pc.binary_join_element_wise(f"domain://{plan.domain}/", _of_kind(3, kind), ""),
            who.receivers.take(peer),
        ),
        "size": pc.cast(_whole(pc.exp(pc.add(4.8, pc.multiply(chance(7), 3.0)))), pa.int32()),
        "listeners": pc.cast(pc.if_else(reached, listeners, 0), pa.int32()),
        "outcome": _of_kind(2, kind),
        "component": _of_kind(3, kind),
        "code": pc.cast(_of_kind(4, kind), pa.int32()),
        "effect": _of_kind(5, kind),
        "rule": _of_kind(6, kind),
        "asserted": pc.less(_modulo(speaker, 10), 4),
        "latency_us": pc.cast(_whole(slow), pa.int32()),
    }
    return pa.table([columns[name] for name in STORED.names], schema=STORED)


def _shares(plan: Plan, begin: list[datetime]) -> list[int]:
    """Rows of each hour; they add up to the plan's."""
    weights = [
        (0.25 + 0.75 * math.exp(-(((hour.hour - 15) / 5) ** 2)))
        * (0.5 if hour.weekday() >= 5 else 1.0)
        for hour in begin
    ]
    total, given, sum_up_to, shares = sum(weights), 0, 0.0, []
    for weight in weights:
        sum_up_to += weight
        shares.append(round(plan.rows * sum_up_to / total) - given)
        given += shares[-1]
    return shares


def _drawn(chances: pa.Array, shares: list[float]) -> pa.Array:
    """An index into `shares` for each chance."""
    drawn, limit = pa.repeat(0, len(chances)), 0.0
    for share in shares[:-1]:
        limit += share
        drawn = pc.add(drawn, pc.cast(pc.greater_equal(chances, limit), pa.int64()))
    return drawn


def _of_kind(field: int, kind: pa.Array) -> pa.Array:
    return pa.array([row[field] for row in _KINDS]).take(kind)


def _whole(numbers: pa.Array) -> pa.Array:
    return pc.cast(pc.floor(numbers), pa.int64())


def _modulo(numbers: pa.Array, by: int) -> pa.Array:
    return pc.subtract(numbers, pc.multiply(pc.divide(numbers, by), by))


def _key(seed: int, number: int, of: str = "runtime") -> uuid.UUID:
    digest = hashlib.blake2b(f"{seed}/{number}/{of}".encode(), digest_size=16).digest()
    return uuid.UUID(bytes=digest, version=4)


def last_full_hour(now: datetime) -> datetime:
    """When the last hour that is over began."""
    return now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
