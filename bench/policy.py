"""Policy decisions to be measured, by the part "policy" of the bench.

A decision is measured with all it takes from a parsed message and its speaker: fresh facts, their
attributes, the verdict. The loads:

    equal     n sibling rules, one equality each, none matching
    mixed     n sibling rules: an equality, a pattern, a number or a time with a negation
    target    n rules whose targets name kind of message and domain, conditions a pattern
    nested    one rule of n layers, two tests each
    publish   reading and compiling n rules of the `target` kind

`indexed` has the target index on, `scanned` has it off. In the same run, in alternation: casbin
deciding the same n `equal` rules, and a plain function of n `if`s.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import Any

import casbin

from msgnode.core import messages
from msgnode.core.decision import Direction
from msgnode.core.identity import Identity, Speaker
from policies.enforcement.snapshot import make_snapshot
from policies.engine.attributes import Facts, Surroundings
from policies.engine.documents import read_document
from policies.engine.pdp import compile_sets

SIZES = (10, 100, 400, 1_000, 10_000)
LAYERS = 400

FRAME = (
    b'{"id":1,"type":"create","from":"hyperty://a.com/1","to":"hyperty://b.com/2",'
    b'"body":{"value":{"text":"' + b"x" * 60 + b'"}}}'
)
MESSAGE = messages.parse(FRAME)
BOB = Identity("i", "s", "bob@gmail.com", "gmail.com")
SPEAKER = Speaker("s", "runtime://a.com/1", identity=BOB)
AROUND = Surroundings()

Run = Callable[[], object]


def document(kind: str, size: int) -> list[Any]:
    """A document of one policy with `size` rules that do not match MESSAGE."""
    rules = [{"effect": "deny", **_rule(kind, number)} for number in range(size)]
    return [{"policies": [{"rules": rules}]}]


def nested(layers: int) -> list[Any]:
    """A rule that must go through all its layers to know."""
    condition: dict[str, Any] = {"msgId": {"equals": 1}}
    for number in range((layers - 1) // 2):
        later = {"msgId": {"moreThan": number + 5}}
        condition = {"allOf": [{"actionType": {"equals": "create"}}, {"anyOf": [later, condition]}]}
    return [{"policies": [{"rules": [{"effect": "deny", "condition": condition}]}]}]


def decision(content: list[Any], indexed: bool) -> Run:
    """A decision on MESSAGE, from its fields to the outcome."""
    evaluate = compile_sets(read_document(content), indexed=indexed).evaluate
    to = MESSAGE.recipients[0]
    return lambda: evaluate(Facts(MESSAGE, SPEAKER, Direction.IN, to, AROUND))


def casbin_decision(size: int) -> Run:
    """casbin over the same rules: any matching deny blocks."""
    model = casbin.Model()
    model.load_model_from_text(
        "[request_definition]\nr = sub, act\n"
        "[policy_definition]\np = sub, act, eft\n"
        "[policy_effect]\ne = !some(where (p.eft == deny))\n"
        "[matchers]\nm = r.sub == p.sub && r.act == p.act\n"
    )
    enforcer = casbin.Enforcer(model)
    enforcer.enable_log(False) if hasattr(enforcer, "enable_log") else None
    enforcer.add_policies([(f"u{n}@x.com", "create", "deny") for n in range(size)])
    return lambda: enforcer.enforce(BOB.username, MESSAGE.type)


def chain(size: int) -> Run:
    """A plain function that asks one `if` after another."""
    lines = ["def decide(message, speaker):", " user = speaker.identity.username"]
    lines += [f" if user == 'u{n}@x.com': return 'deny'" for n in range(size)]
    names: dict[str, Any] = {}
    exec("\n".join([*lines, " return 'notApplicable'"]), names)  # noqa: S102 (text made above)
    decide = names["decide"]
    return lambda: decide(MESSAGE, SPEAKER)


def loads(quick: bool) -> Iterator[tuple[str, str, Run]]:
    """What is measured: (size, by whom, what to run)."""
    for size in (10, 400) if quick else SIZES:
        title = f"{size:,} rules"
        for kind in ("equal", "mixed", "target"):
            content = document(kind, size)
            if kind != "mixed":
                yield title, f"{kind}, indexed", decision(content, True)
            if kind != "target" and size <= 1_000:
                yield title, f"{kind}, scanned", decision(content, False)
        yield title, "casbin", casbin_decision(size)
        yield title, "ifs", chain(size)
    yield f"{LAYERS} layers", "nested", decision(nested(LAYERS), True)
    content = document("target", 1_000)
    yield "publish 1,000 rules", "publish", lambda: make_snapshot(content, {})


def sample(run: Run, seconds: float) -> dict[str, float]:
    """p50 and p99 in microseconds over at least 20 runs and `seconds`."""
    times: list[int] = []
    until = perf_counter_ns() + int(seconds * 1e9)
    gc.collect()
    gc.disable()
    try:
        while len(times) < 20 or perf_counter_ns() < until:
            began = perf_counter_ns()
            run()
            times.append(perf_counter_ns() - began)
    finally:
        gc.enable()
    times.sort()
    return {
        "p50_us": times[len(times) // 2] / 1e3,
        "p99_us": times[int(len(times) * 0.99)] / 1e3,
    }


def _rule(kind: str, number: int) -> dict[str, Any]:
    if kind == "equal":
        return {"condition": {"srcUsername": {"equals": f"u{number}@x.com"}}}
    if kind == "target":
        return {
            "target": {
                "msgType": {"equals": "dataSync"},
                "dstSPDomain": {"equals": f"d{number}.com"},
            },
            "condition": {"srcUsername": {"like": "*@x.com"}},
        }
    conditions: tuple[dict[str, Any], ...] = (
        {"srcUsername": {"equals": f"u{number}@x.com"}},
        {"srcUsername": {"like": f"*@x{number}.com"}},
        {"msgId": {"moreThan": number + 10}},
        {"time": {"between": "23:59:58 23:59:59"}, "msgTo": {"not": {"equals": f"x{number}"}}},
    )
    return {"condition": conditions[number % 4]}
