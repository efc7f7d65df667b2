"""What heavy pages cost messages that pass at the same time: four operators who ask for lists of
100,000 rows, reports and exports without a pause, of the worker itself or of the web process."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from functools import partial

from bench.consoles import Operator
from bench.driver import Generator
from bench.figures import PartResult, ratio
from bench.heavy_pages import PAGES, REPORT_PAGES, Asked, asking
from bench.plan import Plan
from bench.servers import NODE, manage, web_process

ROWS, RECORDED, QUICK = 100_000, 200_000, 50
OPERATORS = 4
RATE, SIZE = 2_000, 300
LENGTH = 3  # seconds of a sample for each of the plan's
WEB, SAME = "pages of a web process", "pages of the worker"
TARGET = 1.2


def measure(plan: Plan) -> PartResult:
    result = PartResult(
        "heavy_pages", "Messages beside heavy pages: p99 in µs", unit="µs", headline="p99_us"
    )
    rows = ROWS // (QUICK if plan.quick else 1)
    title = f"{RATE:,} messages/s of {SIZE} B, {rows:,} rows, {OPERATORS} operators"
    pages = PAGES if plan.quick else PAGES + REPORT_PAGES
    with ExitStack() as stack:
        worker = plan.servers.make(NODE)
        manage(
            worker.environment, "shell", "-c", f"from bench.heavy_pages import fill; fill({rows})"
        )
        if not plan.quick:
            recorded = ("traffic_generate", "--rows", str(RECORDED), "--days", "1")
            manage(worker.environment, *recorded)
            manage(worker.environment, "report_run", "daily")
            plan.say("rows and report made")
        stack.enter_context(worker)
        web = stack.enter_context(web_process(worker))
        operator = Operator(worker)
        operator.log_in(web.port)
        generator = stack.enter_context(Generator(worker))
        for path in pages:  # once before: what a process loads at its first page is no question
            for server in (worker, web):
                if (status := operator.get(path, server.port)) != 200:
                    raise RuntimeError(f"{path} answers {status}.")
        ports = {NODE: 0, WEB: web.port, SAME: worker.port}
        given = dict.fromkeys(ports, 0)
        for turn in plan.rotations(list(ports)):
            for name in turn:
                port = ports[name]
                get = partial(operator.get, port=port)
                beside = asking(get, pages, OPERATORS) if port else nullcontext(Asked())
                with beside as asked:
                    sample = generator.call(
                        "steady", rate=RATE, size=SIZE, seconds=LENGTH * plan.seconds
                    )
                if asked.fault:
                    raise RuntimeError(f"The pages were not all given: {asked.fault}")
                given[name] += asked.given
                result.case(title, name).samples.append(sample)
        plan.say(title)
    for name, target in ((WEB, TARGET), (SAME, TARGET)):
        mine, alone = result.case(title, name), result.case(title, NODE)
        result.ratios.append(ratio(mine, alone, "p99_us", target, "at most"))
        result.ratios.append(ratio(mine, alone, "rate", 0.95))
        result.notes.append(f"{name}: {given[name]} pages were given meanwhile.")
    return result
