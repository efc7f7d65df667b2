"""Traffic that varies as that of a domain does, the same at each run: who talks to whom, and what.

    0.60 update       to a hyperty, or (a tenth of them) to the three observers of an object
    0.14 read         to a hyperty, which answers: a request and a response
    0.15 create       to a hyperty
    0.10 request      to a component of the node: subscription, registry, allocation
    0.01 refused      to a domain that a rule forbids

In `conversations` a hyperty talks to eight others, to some of them often, as people do: about a
third of the messages are of a pair that has just spoken. In `strangers` no pair speaks twice, but
for chance: whatever a server keeps of a message is of no use for the next.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from .loads.runtimes import ALLOCATION, SM, text

CONVERSATIONS, STRANGERS = "conversations", "strangers"
SESSIONS, HYPERTIES = 100, 100  # of each session; 10,000 addresses
OBJECTS, OBSERVERS = 50, 3
FORBIDDEN = "hyperty://forbidden.example/anybody"
REGISTRY = "domain://registry.localhost"
_SEED = 20_170_315
_PARTNERS = 8
_BODIES = 400  # different ones of each mix
_SPREAD = 0.5  # of the logarithm of a body's size
_LARGEST = 4  # times the named size
_ALLOCATIONS = 0.05  # of the requests to components


@dataclass(frozen=True, slots=True)
class Plan:
    """One message but for its id: `head` id `tail`, from a session; how many hear of it, and
    whether it is a request to a component."""

    session: int
    head: bytes
    tail: bytes
    heard: int
    is_request: bool


def hyperty(session: int, number: int) -> str:
    return f"hyperty://localhost/{session}-{number}"


def object_of(number: int) -> str:
    return f"comm://localhost/varied-{number}"


def addresses_of(session: int) -> list[str]:
    """What a session holds and hears: its hyperties, its object, objects of others."""
    held = [hyperty(session, number) for number in range(HYPERTIES)]
    held += [object_of(number) for number in range(OBJECTS) if number == session]
    for number in range(OBJECTS):
        if (session - number) % SESSIONS in range(1, OBSERVERS + 1):
            held.append(f"{object_of(number)}/changes")
    return held


def plans(kind: str, size: int, seed: int) -> Iterator[Plan]:
    """Messages without an end; bodies of about `size` bytes, the median of their spread."""
    random = Random(_SEED + seed)
    bodies = [_body(random, size) for _ in range(_BODIES)]
    partners = {
        (session, number): [_anybody(random) for _ in range(_PARTNERS)]
        for session in range(SESSIONS)
        for number in range(HYPERTIES)
    }
    requested: dict[int, int] = {}
    while True:
        session, number = _anybody(random)
        sender = hyperty(session, number)
        chance = random.random()
        if chance < 0.01:
            yield _plan(session, "update", sender, FORBIDDEN, random.choice(bodies))
        elif chance < 0.11:
            yield _request(random, session, requested)
        elif chance < 0.17:
            reporter = random.randrange(OBJECTS)
            to = f"{object_of(reporter)}/changes"
            yield _plan(
                reporter, "update", object_of(reporter), to, random.choice(bodies), OBSERVERS
            )
        else:
            if kind == STRANGERS:
                other = _anybody(random)
            else:
                known = partners[session, number]
                other = known[min(int(random.expovariate(0.8)), _PARTNERS - 1)]
            type_ = "update" if chance < 0.71 else "create" if chance < 0.86 else "read"
            yield _plan(session, type_, sender, hyperty(*other), random.choice(bodies))


def _anybody(random: Random) -> tuple[int, int]:
    return random.randrange(SESSIONS), int(HYPERTIES * random.random() ** 2)  # some talk more


def _plan(session: int, type_: str, from_: str, to: str, body: str, heard: int = 1) -> Plan:
    tail = f',"type":"{type_}","from":"{from_}","to":"{to}","body":{body}}}'
    return Plan(session, b'{"id":', tail.encode(), heard, to.startswith("domain://"))


def _request(random: Random, session: int, requested: dict[int, int]) -> Plan:
    url = f"runtime://localhost/varied-{session}"
    chance = random.random()
    if chance < _ALLOCATIONS:
        body = '{"scheme":"hyperty","value":{"number":1}}'
        return _plan(session, "create", f"{url}/registry/allocation", ALLOCATION, body)
    if chance < 0.5:
        body = f'{{"resource":"user://localhost/nobody-{random.randrange(10_000)}"}}'
        return _plan(session, "read", f"{url}/registry", REGISTRY, body)
    turn = requested[session] = requested.get(session, 0) + 1
    type_ = "subscribe" if turn % 2 else "unsubscribe"
    resource = f"{object_of((session + turn // 2) % OBJECTS)}/children/{session}"
    key = "resources" if turn % 2 else "resource"
    value = json.dumps([resource] if turn % 2 else resource)
    return _plan(session, type_, f"{url}/sm", SM, f'{{"{key}":{value}}}')


def _body(random: Random, size: int) -> str:
    long = min(int(size * math.exp(random.gauss(0.0, _SPREAD))), _LARGEST * size)
    said = text(long)
    at = random.randrange(len(said) or 1)
    return json.dumps({"value": said[at:] + said[:at], "attribute": f"a{random.randrange(1_000)}"})
