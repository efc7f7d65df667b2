"""The commands on a running node."""

from __future__ import annotations

import asyncio
import json
import subprocess

import pytest

from tests.client import ALLOCATION
from tests.node import Node

from .test_live import until


async def run(node: Node, *words: str) -> str:
    return await asyncio.to_thread(node.manage, *words)


async def test_a_message_is_sent_and_answered(node: Node):
    body = '{"scheme": "hyperty", "value": {"number": 2}}'
    output = await run(node, "node_send", ALLOCATION, "--type", "create", "--body", body, "--json")
    answer = json.loads(output)
    assert answer["from"] == ALLOCATION
    assert len(answer["body"]["value"]["allocated"]) == 2


async def test_a_refusal_is_told_by_the_exit_status(node: Node):
    with pytest.raises(subprocess.CalledProcessError) as refused:
        await run(node, "node_send", "hyperty://localhost/nobody", "--json")
    assert refused.value.returncode == 1
    assert json.loads(refused.value.stdout)["body"]["code"] == 404


@pytest.mark.parametrize("words", [["--url", "ws://127.0.0.1:1/"], ["--body", "no json"]])
async def test_what_cannot_be_done_is_told_by_the_exit_status(node: Node, words):
    with pytest.raises(subprocess.CalledProcessError) as refused:
        await run(node, "node_send", ALLOCATION, *words)
    assert refused.value.returncode == 2


async def test_status_tells_workers_and_sessions(node: Node, come):
    await come()

    async def is_told() -> bool:
        status = json.loads(await run(node, "node_status", "--json"))
        return bool(status["workers"]) and status["sessions"]["open"] >= 1

    await until(is_told)
