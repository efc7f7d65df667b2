"""The domain registry of a real node over REST, from Python and Node.js, as by messages."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msgnode.runtime.python import Runtime, Settings, rest_registries
from tests.node import ROOT, Node
from tests.stubs.runtimes import node_js

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).parent / "registries.mjs"
TO = "domain://registry.localhost"
BOB = "user://localhost/bob"
Asked = list[tuple[str, dict[str, Any]]]


def life_of(url: str) -> Asked:
    """What is asked about an entry from its beginning to its end."""
    value = {"url": url, "user": BOB, "descriptor": "x", "expires": 60, "resources": ["chat"]}
    value |= {"status": "live", "runtime": "runtime://localhost/1", "dataSchemes": ["comm"]}
    return [
        ("create", {"value": value}),
        ("read", {"resource": url}),
        ("read", {"resource": BOB, "criteria": {"resources": ["chat"]}}),
        ("update", {"resource": url}),
        ("update", {"resource": url, "value": {"resources": ["video"]}}),
        ("read", {"resource": BOB, "criteria": {"resources": ["chat"]}}),
        ("delete", {"value": {"url": url, "user": BOB}}),
        ("read", {"resource": url}),
        ("create", {"value": {"url": f"{url}x", "user": BOB}}),
        ("read", {"resource": "hyperty://localhost/nobody"}),
    ]


CODES = [200, 200, 200, 200, 200, 404, 200, 408, 400, 404]


async def in_python(settings: Settings, asked: Asked) -> tuple[list[dict[str, Any]], bool]:
    """The answers, and whether any code was loaded."""
    async with Runtime(settings) as runtime:
        answers = []
        for type_, body in asked:
            head = {"type": type_, "from": f"{runtime.url}/test", "to": TO}
            answers.append((await runtime.bus.request({**head, "body": body}))["body"])
        return answers, runtime.resolver.stubs.get("localhost") is not None


def in_nodejs(registries: dict[str, str], asked: Asked) -> tuple[list[dict[str, Any]], bool]:
    """The same."""
    options = {"domain": "localhost", "registries": registries}
    order = json.dumps({"options": options, "messages": asked})
    done = subprocess.run(
        [*node_js(), str(SCRIPT), order], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    return said["answers"], bool(said["stubs"])


async def test_both_runtimes_use_a_registry_over_rest_and_a_frozen_one_costs_a_limited_time(
    start_node: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = start_node(REGISTRY_ACCESS="open")
    urls = {"localhost": f"http://127.0.0.1:{node.port}/domain-registry"}
    settings = Settings("localhost", registries=urls)
    url = "hyperty://localhost/a&b/ü"
    for answers, is_loaded in (
        await in_python(settings, life_of(f"{url}/py")),
        await asyncio.to_thread(in_nodejs, urls, life_of(f"{url}/js")),
    ):
        assert [each["code"] for each in answers] == CODES, answers
        assert answers[1]["value"]["hypertyID"].startswith(url)
        assert all(each["userID"] == BOB for each in answers[2]["value"].values())
        assert answers[7]["value"]["status"] == "disconnected"
        assert not is_loaded

    monkeypatch.setattr(rest_registries, "SECONDS", 2.0)
    read: Asked = [("read", {"resource": f"{url}/py"})]
    os.kill(node.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        answers, _ = await in_python(settings, read)
        assert answers[0]["code"] == 504
        assert time.monotonic() - began < 10
    finally:
        os.kill(node.pid, signal.SIGCONT)
    answers, _ = await in_python(settings, read)
    assert answers[0]["code"] == 408
    await asyncio.to_thread(node.kill)
    answers, _ = await in_python(settings, read)
    assert answers[0]["code"] == 504
