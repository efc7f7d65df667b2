"""Two workers of one node, joined by Redis: messages between them against messages within one, and
a worker that is told to stop under traffic."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from bench.driver import Generator
from bench.figures import PartResult, ratio
from bench.plan import Plan
from msgnode.launch.prepare import own_redis

HERE, ACROSS = "one worker", "two workers over Redis"
LOADS = ((1, 1, 100), (10, 10, 100), (10, 10, 1_000), (10, 10, 10_000))
QUICK = ((10, 10, 100),)
TARGETS = {(10, 10, 100): 0.7, (10, 10, 1_000): 0.65, (10, 10, 10_000): 0.65}
SESSIONS = 1_000


def measure(plan: Plan) -> PartResult:
    result = PartResult("workers", "Two workers: messages, and sessions resumed, per second")
    with redis_of(plan) as url:
        _relay(plan, url, result)
        for _ in range(1 if plan.quick else min(plan.rounds, 3)):
            _drain(plan, url, result)
    return result


def _relay(plan: Plan, url: str, result: PartResult) -> None:
    one, other = plan.servers.make_pair(url)
    loads = QUICK if plan.quick else LOADS
    with one, other, Generator(one) as generator:
        for pairs, window, size in loads:
            title = f"{pairs} × window {window}, {size} B"
            for turn in plan.rotations((HERE, ACROSS)):
                for name in turn:
                    load = {"pairs": pairs, "window": window, "size": size}
                    if name == ACROSS:
                        load["to"] = other.port
                    sample = generator.call(
                        "relay_across" if name == ACROSS else "relay",
                        seconds=plan.seconds,
                        **load,
                    )
                    result.case(title, name).samples.append(sample)
            here, across = result.case(title, HERE), result.case(title, ACROSS)
            result.ratios.append(ratio(across, here, target=TARGETS.get((pairs, window, size))))
            plan.say(title)


def _drain(plan: Plan, url: str, result: PartResult) -> None:
    one, other = plan.servers.make_pair(url)
    sessions = SESSIONS // 5 if plan.quick else SESSIONS
    with one, other, Generator(one) as generator:
        sample = generator.call("drain", sessions=sessions, to=other.port)
        sample["exit_status"] = float(one.wait())
        sample["rate"] = sessions / sample["seconds"]
        name = f"SIGTERM with {sessions:,} sessions: resumed"
        result.case(name, ACROSS).samples.append(sample)
    plan.say(f"SIGTERM with {sessions:,} sessions: {sample}")


@contextmanager
def redis_of(plan: Plan) -> Iterator[str]:
    """The URL of a Redis of the bench's own."""
    own = own_redis(plan.servers.directory)
    process = subprocess.Popen(
        [own.program, str(own.configuration)], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    )
    try:
        for _ in range(100):
            try:
                redis.Redis.from_url(own.url).ping()
                break
            except redis.ConnectionError:
                time.sleep(0.05)
        yield own.url
    finally:
        process.terminate()
        process.wait()
