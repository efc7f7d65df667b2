"""From the wire to the report: known traffic through a real node, counted by the real jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark import job_main
from spark.jobs.periods import Kind
from tests.client import Client, address
from tests.node import Node
from tests.traffic.rows import messages, raw_rows

POLICIES = [
    {
        "id": "set",
        "policies": [
            {
                "id": "policy",
                "rules": [
                    {
                        "id": "no-secrets",
                        "effect": "deny",
                        "condition": {"msgTo": {"like": "*/secret"}},
                    }
                ],
            }
        ],
    }
]
pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
]
OBSERVERS = 5


async def traffic(node: Node) -> None:
    """What the test below counts, one line for each row or group of rows."""
    async with AsyncExitStack() as stack:
        alice, *observers = [
            await (await stack.enter_async_context(node.ws())).open() for _ in range(1 + OBSERVERS)
        ]  # 6 × open, answered
        (obj,) = await alice.allocate("comm")  # 1 × create, answered
        for observer in observers:
            await observer.subscribe(f"{obj}/changes")  # 5 × subscribe, answered
        for number in range(10):
            await alice.send("update", f"{obj}/changes", {"value": number}, sender=obj)
        bob: Client = observers[0]
        for number in range(7):
            await alice.send("execute", bob.runtime_url, {"value": number})
        assert (await alice.ask("read", address()))["body"]["code"] == 404  # 1 × undeliverable
        await alice.send("execute", [bob.runtime_url, address()], {})  # 1 delivered, 1 not
        for _ in range(3):  # 3 × blocked
            answer = await alice.ask("read", f"{address()}/secret")
            assert answer["body"]["code"] == 403
        await bob.expect(to=bob.runtime_url, type="execute", body={"value": 6, "auth": False})
        for observer in observers:
            await observer.expect(to=f"{obj}/changes", body={"value": 9, "auth": False})


async def test_known_traffic_is_found_in_the_report(
    start_node: Callable[..., Node], spark: SparkSession
) -> None:
    node = start_node(RECORD_FLUSH_SECONDS=0.2, GRACE_PERIOD=0)
    policies = node.data_dir / "policies.json"
    policies.write_text(json.dumps(POLICIES))
    node.manage("policy_import", str(policies), "--mode", "enforce", "--publish")
    node.terminate()
    assert node.status() == 0
    await traffic(node.start())
    node.terminate()
    assert node.status() == 0
    record = node.data_dir / "record"
    begun = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    made = job_main.make(spark, Kind.HOURLY, str(record), begun, begun + timedelta(hours=2), "a")[
        "reports"
    ]
    counted: dict[tuple[str, str], int] = {}
    for report in made:
        for row in report["tables"]["types"]:
            for outcome in ("delivered", "answered", "undeliverable", "blocked"):
                if row[outcome]:
                    key = (row["type"], outcome)
                    counted[key] = counted.get(key, 0) + row[outcome]
    assert counted == rows(record)
    assert counted[("update", "delivered")] == 10
    assert counted[("execute", "delivered")] == 8
    assert counted[("read", "undeliverable")] == 1
    assert counted[("execute", "undeliverable")] == 1
    assert counted[("subscribe", "answered")] == OBSERVERS
    assert counted[("create", "answered")] == 1
    assert counted[("open", "answered")] == 1 + OBSERVERS
    assert counted[("read", "blocked")] == 3
    causes = [row for report in made for row in report["tables"]["causes"]]
    assert {row["rule"] for row in causes if row["outcome"] == "blocked"} == {"no-secrets"}
    total = sum(report["totals"]["deliveries"] for report in made)
    assert total >= 10 * OBSERVERS + 8


def rows(record: Path) -> dict[tuple[str, str], int]:
    """(type, outcome) → rows, as they stand in the files."""
    table = messages(raw_rows(record / "raw"))
    found = table.group_by(["type", "outcome"]).aggregate([([], "count_all")]).to_pylist()
    return {(row["type"], row["outcome"]): row["count_all"] for row in found}
