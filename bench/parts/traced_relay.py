"""What tracing costs a relayed message: a node that exports what senders mark, one that traces one
message in a hundred besides, and one where a page watches others, against one without, in turn."""

from __future__ import annotations

from contextlib import ExitStack

from bench.consoles import Operator
from bench.driver import Generator
from bench.figures import PartResult, ratio
from bench.plan import Plan
from bench.processes import free_port
from bench.servers import NODE

LOAD = (10, 10, 100)
ON, SAMPLED, WATCHED = "senders' own", "one in a hundred", "others are watched"
AGAIN = "another node without"  # how far two that do the same are apart
PAGE = "traces/?type=delete"
TARGETS = {ON: 0.95, WATCHED: 0.95, SAMPLED: 0.9, AGAIN: None}


def measure(plan: Plan) -> PartResult:
    result = PartResult("traced_relay", "Relay with tracing: messages per second")
    nobody = f"http://127.0.0.1:{free_port()}"  # spans are lost there, and that costs as ever
    settings: dict[str, dict[str, str]] = {
        ON: {"OTEL_EXPORTER_OTLP_ENDPOINT": nobody},
        SAMPLED: {"OTEL_EXPORTER_OTLP_ENDPOINT": nobody, "TRACE_SAMPLE_RATIO": "0.01"},
        WATCHED: {},
        NODE: {},
        AGAIN: {},
    }
    pairs, window, size = LOAD
    title = f"{pairs} pairs × window {window}, {size} B"
    with ExitStack() as stack:
        generators = {}
        for name, more in settings.items():
            server = stack.enter_context(plan.servers.make(NODE, "", None, **more))
            generators[name] = stack.enter_context(Generator(server))
            if name == WATCHED:
                stack.enter_context(Operator(server).watching(1, PAGE))
        for turn in plan.rotations(list(settings), times=2):
            for name in turn:
                sample = generators[name].call(
                    "relay", pairs=pairs, window=window, size=size, seconds=plan.seconds
                )
                result.case(title, name).samples.append(sample)
        plan.say(title)
    for name, target in TARGETS.items():
        result.ratios.append(
            ratio(result.case(title, name), result.case(title, NODE), target=target)
        )
    return result
