"""What a policy decision costs: `python -m bench.policy`, or the part "policy" of `make bench`.

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
import json
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any

import casbin

from msgnode.core import messages
from msgnode.core.decision import Direction
from msgnode.core.speaker import Identity, Speaker
from policies.attributes import Facts, Surroundings
from policies.documents import read_document
from policies.editions import make_edition
from policies.pdp import compile_sets

SIZES = (10, 100, 400, 1_000, 10_000)
LAYERS = 400
ROUNDS = 5
SECONDS = 0.15
TARGETS = (
    ("equal scanned 400", "p50", 20.0),
    ("equal scanned 400", "p99", 100.0),
    ("mixed scanned 400", "p50", 20.0),
    ("mixed scanned 400", "p99", 100.0),
    ("nested 400", "p50", 100.0),
    ("publish 1000", "p50", 50_000.0),
)

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


def loads(quick: bool) -> Iterator[tuple[str, Run]]:
    """What is measured, by name."""
    for size in SIZES:
        if quick and size > 1_000:
            continue
        for kind in ("equal", "mixed", "target"):
            content = document(kind, size)
            if kind != "mixed":
                yield f"{kind} indexed {size}", decision(content, True)
            if kind != "target" and size <= 1_000:
                yield f"{kind} scanned {size}", decision(content, False)
        yield f"casbin {size}", casbin_decision(size)
        yield f"ifs {size}", chain(size)
    yield f"nested {LAYERS}", decision(nested(LAYERS), True)
    content = document("target", 1_000)
    yield "publish 1000", lambda: make_edition(content, {})


def sample(run: Run, seconds: float = SECONDS) -> tuple[float, float]:
    """(p50, p99) in microseconds over at least 20 runs and `seconds`."""
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
    return times[len(times) // 2] / 1e3, times[int(len(times) * 0.99)] / 1e3


def measure(rounds: int = ROUNDS, quick: bool = False) -> dict[str, dict[str, Any]]:
    """Medians and spread of p50 and p99 over alternating rounds."""
    runs = dict(loads(quick))
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            samples[name].append(sample(run))
    return {
        name: {
            "p50": round(median(p50 for p50, _ in found), 2),
            "p50_low": round(min(p50 for p50, _ in found), 2),
            "p50_high": round(max(p50 for p50, _ in found), 2),
            "p99": round(median(p99 for _, p99 in found), 2),
        }
        for name, found in samples.items()
    }


def judged(figures: dict[str, dict[str, Any]]) -> list[str]:
    """The targets, and the ratios of this run, in words."""
    lines = []
    for name, key, target in TARGETS:
        value = figures[name][key]
        verdict = "met" if value <= target else "missed"
        lines.append(f"{name}, {key}: {value:g} µs, aimed at {target:g}: {verdict}")
    for kind in ("equal", "target"):
        large, small = f"{kind} indexed 10000", f"{kind} indexed 10"
        if large in figures:
            share = figures[large]["p50"] / figures[small]["p50"]
            verdict = "met" if share <= 2 else "missed"
            lines.append(f"{large} : 10, p50: {share:.2f}, aimed at most 2: {verdict}")
    for size in SIZES:
        mine = figures.get(f"equal indexed {size}")
        if mine is None:
            continue
        for other in ("casbin", "ifs"):
            theirs = figures[f"{other} {size}"]["p50"]
            lines.append(f"{other} {size} : indexed, p50: {theirs / mine['p50']:.1f}")
            if f"equal scanned {size}" in figures:
                scanned = figures[f"equal scanned {size}"]["p50"]
                lines.append(f"{other} {size} : scanned, p50: {theirs / scanned:.1f}")
    return lines


def main() -> int:
    """Measure, print, keep."""
    quick = "--quick" in sys.argv
    figures = measure(2 if quick else ROUNDS, quick)
    width = max(map(len, figures))
    for name, each in figures.items():
        low, high = each["p50_low"], each["p50_high"]
        print(f"{name:<{width}}  p50 {each['p50']:>10,.1f} µs ({low:,.1f}-{high:,.1f})"
              f"  p99 {each['p99']:>10,.1f} µs")  # fmt: skip
    notes = judged(figures)
    print("\n" + "\n".join(notes))
    content = {
        "conditions": {"python": platform.python_version(), "machine": platform.machine()},
        "figures": figures,
        "notes": notes,
    }
    place = Path(__file__).parent / "results"
    place = place / "local" if quick else place
    place.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (place / "policy.json").write_text(text + "\n", encoding="utf-8")
    return 0


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


if __name__ == "__main__":
    sys.exit(main())
