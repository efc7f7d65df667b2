"""Sensors behind an MQTT broker that update data objects: what a node sustains, and what a reading
costs it; and one that is offered more than it is told to carry."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from sqlite3 import connect

from bench.driver import Generator
from bench.figures import PartResult
from bench.plan import Plan
from bench.processes import Server, free_port
from bench.servers import NODE

RATE, SECONDS, QUICK_SECONDS = 3_000, 60.0, 5.0
OFFERED, CARRIED, OVERLOAD_SECONDS = 3_000, 1_500, 15.0
_READY = 3.0


def measure(plan: Plan) -> PartResult:
    result = PartResult("sensors", "Readings of sensors into data objects: updates per second")
    seconds = QUICK_SECONDS if plan.quick else SECONDS
    for _ in plan.rotations([NODE]):
        with _node(plan, 10_000) as (generator, broker):
            sample = generator.call("sensors", broker=broker, rate=RATE, seconds=seconds)
        result.case(f"{RATE:,} a second for {seconds:g} s", NODE).samples.append(sample)
        plan.say("sustained")
        with _node(plan, CARRIED) as (generator, broker):
            over = min(seconds, OVERLOAD_SECONDS)
            sample = generator.call("sensors", broker=broker, rate=OFFERED, seconds=over)
        name = f"{OFFERED:,} a second, where {CARRIED:,} may be carried"
        result.case(name, NODE).samples.append(sample)
        plan.say("held back")
    for case in result.cases:
        used, held = case.values("us_per_update"), case.values("held_back")
        result.notes.append(
            f"{case.name}: {min(used):.0f}-{max(used):.0f} µs of processor an update, "
            f"{max(held):,.0f} held back at the end, {sum(case.values('lost')):.0f} lost"
        )
    return result


@contextmanager
def _node(plan: Plan, rate: int) -> Iterator[tuple[Generator, int]]:
    """A node at a broker of its own, with one sensor topic."""
    port = free_port()
    home = plan.servers.directory / f"mosquitto-{port}"
    home.mkdir()
    broker = Server(
        "mosquitto", ["-c", str(_config(home, port))], port, home / "log", {}, "mosquitto"
    )
    node = plan.servers.make(
        NODE, DEVICE_MQTT="true", MQTT_URL=f"mqtt://127.0.0.1:{port}",
        MQTT_MESSAGES_PER_SECOND=str(rate),
    )  # fmt: skip
    _add_topic(node.log.parent / "node.sqlite3")
    with broker, node as server, Generator(server) as generator:
        time.sleep(_READY)
        yield generator, port


def _config(home: Path, port: int) -> Path:
    lines = [
        f"listener {port} 127.0.0.1", "allow_anonymous true", "max_queued_messages 0",
        "max_queued_bytes 0", "max_inflight_messages 2000", "set_tcp_nodelay true",
    ]  # fmt: skip
    if os.geteuid() == 0:
        lines.append("user root")
    config = home / "mosquitto.conf"
    config.write_text("\n".join(lines) + "\n")
    return config


def _add_topic(database: Path) -> None:
    with closing(connect(database)) as rows, rows:
        rows.execute(
            'INSERT INTO msgnode_mqtttopic (topic, object, attribute, path, "schema", '
            "command_topic, is_enabled) VALUES ('sensors/+/t', 'context://localhost/{1}', "
            "'value', '', '', '', 1)"
        )
