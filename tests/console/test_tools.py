"""The commands on a running node."""

from __future__ import annotations

import asyncio
import json
import subprocess

import pytest

from tests.client import ALLOCATION
from tests.node import Node, eventually

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


# --- node_tail ------------------------------------------------------------------------------------


async def followed(node: Node, come, *words: str) -> list[dict]:
    """What `node_tail` shows of two runtimes that talk while it follows."""
    alice, bob = await come(), await come()
    await bob.subscribe("comm://localhost/room/changes")
    tail = asyncio.ensure_future(run(node, "node_tail", "--json", "--count", "3", *words))
    while not tail.done():
        body = {"value": "secret", "via": alice.session_url, "accessToken": "opens doors"}
        await alice.send("execute", bob.runtime_url, body)
        await alice.send("update", "comm://localhost/room/changes", sender="comm://localhost/room")
        await alice.send("read", "hyperty://localhost/nobody")
        await bob.received_from(alice)
        await alice.settled()  # read what was answered: a full inbox holds up good-byes
        await eventually()
    lines = [json.loads(line) for line in tail.result().splitlines()]
    assert alice.token not in tail.result()
    return [line for line in lines if "at" in line]


async def test_messages_are_followed_by_what_is_asked_for(node, come):
    words = ["--address", "comm://localhost/room", "--type", "update", "read"]
    lines = await followed(node, come, *words, "--outcome", "delivered", "undeliverable")
    assert {line["to"] for line in lines} == {"comm://localhost/room/changes"}
    assert not any("body" in line for line in lines)


async def test_bodies_are_shown_only_when_asked_for_and_without_tokens(node, come):
    lines = await followed(node, come, "--bodies", "--type", "execute")
    bodies = [line["body"] for line in lines if line["body"].get("value") == "secret"]
    assert bodies
    assert all(body["via"].startswith("runtime://localhost/") for body in bodies)
    assert all(body["accessToken"] == "…" for body in bodies)


async def test_the_tail_is_for_who_may_read_its_token(node):
    (path,) = node.data_dir.glob("tail-*.sock")
    assert path.stat().st_mode & 0o077 == 0
    assert (node.data_dir / "tail.token").stat().st_mode & 0o077 == 0
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b'{"token": "a guess"}\n')
    assert "error" in json.loads(await reader.readline())
    assert await reader.read() == b""
    writer.close()


async def test_a_follower_that_does_not_read_misses_records_and_slows_nobody(node, come):
    alice, bob = await come(), await come()
    (path,) = node.data_dir.glob("tail-*.sock")
    reader, writer = await asyncio.open_unix_connection(path, limit=1024)
    token = (node.data_dir / "tail.token").read_text()
    writer.write(json.dumps({"token": token, "bodies": True}).encode() + b"\n")
    assert "following" in json.loads(await reader.readline())
    for _ in range(3000):
        await alice.send("execute", bob.runtime_url, {"value": "x" * 2000})
    assert len(await bob.received_from(alice)) == 3000
    lines = []
    while not lines or "missed" not in lines[-1]:
        lines.append(json.loads(await asyncio.wait_for(whole_line(reader), 20)))
    assert lines[-1]["missed"] > 0
    writer.close()


async def whole_line(reader: asyncio.StreamReader) -> bytes:
    """A line of any length from a reader that keeps little."""
    line = b""
    while not line.endswith(b"\n"):
        try:
            line += await reader.readuntil(b"\n")
        except asyncio.LimitOverrunError as more:
            line += await reader.readexactly(more.consumed)
    return line
