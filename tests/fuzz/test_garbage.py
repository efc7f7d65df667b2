"""Garbage over real sockets: after each bunch of it the session still answers, and nobody else
hears of it. The seed is fixed; FUZZ_SEED and FUZZ_ROUNDS make it another or a longer run."""

from __future__ import annotations

import json
import os
import random
from typing import Any

import pytest

from tests.client import ALLOCATION, SESSION, SM, Client, address, code, runtime
from tests.conftest import Come
from tests.node import Node

pytestmark = pytest.mark.long

SEED = int(os.environ.get("FUZZ_SEED", "20"))
ROUNDS = int(os.environ.get("FUZZ_ROUNDS", "12"))
BUNCH = 40

TYPES = ["create", "read", "update", "delete", "subscribe", "unsubscribe", "response", "forward"]
TYPES += ["execute", "open", "re-open", "CREATE", "handshake", "", "x", 7, None, [], {}]
BYTES = [b'"', b"{", b"}", b"[", b"]", b":", b",", b"\\", b"\x00", b"\xff", b"\xc3", b"\\u0000"]
BYTES += [b"null", b"1e999", b"-", b'"auth":true', b'"id":1,', b"\xe2\x80\xae", b"\\ud800"]


class Garbage:
    """Frames from nearly right to noise."""

    def __init__(self, seed: int, client: Client, other: Client) -> None:
        self.chance = random.Random(seed)
        own, theirs = client.runtime_url, other.runtime_url
        self.addresses: list[Any] = [own, f"{own}/sm", theirs, SM, ALLOCATION, SESSION, f"{SM}/"]
        self.addresses += [client.session_url, address(), address("comm") + "/changes", f"{own}/"]
        self.addresses += ["", "x", ":", "//", "mn:", "hyperty://", "comm://localhost", "é", "\x00"]
        self.addresses += [7, None, [], {}, [SM, own], [7], "x" * 5000, f"hyperty-{own}"]

    def frame(self) -> str | bytes:
        match self.chance.randrange(6):
            case 0:
                return self.chance.randbytes(self.chance.randrange(60))
            case 1:
                return json.dumps(self.value(4))
            case 2:
                return self.damaged(json.dumps(self.message()).encode())
            case 3:
                depth = self.chance.choice([10, 300, 900, 1000, 1100, 20_000])
                deep = "[" * depth + "]" * depth
                return json.dumps(self.message()).replace("{}", f'{{"value":{deep}}}', 1)
            case _:
                return json.dumps(self.message())

    def message(self) -> dict[str, Any]:
        pick = self.chance.choice
        fields = {
            "id": pick([1, "1", 1.5, True, None, [], 10**400, "x" * 400, -0.0]),
            "type": pick(TYPES),
            "from": pick(self.addresses),
            "to": pick(self.addresses),
            "body": pick([{}, self.body(), self.body(), self.value(3)]),
        }
        for key in list(fields):
            if not self.chance.randrange(12):
                del fields[key]
        # `close` would end the session by right, and answers to what is pending are not garbage.
        return fields if fields.get("type") != "close" else {}

    def body(self) -> dict[str, Any]:
        keys = ["resource", "resources", "childrenResources", "subscribe", "source", "value", "via"]
        keys += ["scheme", "number", "allocationKey", "auth", "code", "children", "subscriber"]
        chosen = self.chance.sample(keys, self.chance.randrange(5))
        return {key: self.chance.choice([*self.addresses, self.value(2)]) for key in chosen}

    def value(self, depth: int) -> Any:
        chance = self.chance
        leaves: list[Any] = [0, -1, 1.5, 2**70, True, None, "", "a", "é\u202e", "\x00", "k" * 300]
        if not depth or chance.randrange(3):
            return chance.choice([*leaves, *self.addresses])
        if chance.randrange(2):
            return [self.value(depth - 1) for _ in range(chance.randrange(4))]
        names = ["name", "number", "value", "a", "", "\u202e"]
        return {chance.choice(names): self.value(depth - 1) for _ in range(chance.randrange(4))}

    def damaged(self, frame: bytes) -> bytes:
        for _ in range(self.chance.randint(1, 5)):
            at = self.chance.randrange(len(frame) + 1)
            cut = self.chance.choice([0, 0, 1, 3])
            frame = frame[:at] + self.chance.choice([*BYTES, b""]) + frame[at + cut :]
        return frame


@pytest.mark.parametrize(
    ("round_", "handshake"), [(each, ("ws", "stub")[each % 2]) for each in range(ROUNDS)]
)
async def test_after_a_bunch_of_garbage_the_session_still_answers(
    node: Node, come: Come, handshake: str, round_: int
) -> None:
    client, other = await come(handshake=handshake), await come()
    (held,) = await other.allocate()
    garbage = Garbage(SEED * 1000 + round_, client, other)
    for _ in range(BUNCH):
        await client.send_raw(garbage.frame())
    await client.settled()
    mine = await client.allocate()
    assert code(await client.subscribe(f"{held}/changes")) == 200
    # What is anybody else's is as it was.
    await client.send("create", held, {"value": "last"})
    assert [each for each in await other.settled() if each["to"] == held][-1]["body"] == {
        "value": "last", "auth": False,
    }  # fmt: skip
    await other.send("create", mine[0], {"value": 1})
    assert (await client.expect(to=mine[0]))["body"]["value"] == 1
    assert node.is_running()


@pytest.mark.parametrize("round_", range(3))
async def test_garbage_before_any_session_leaves_the_door_open(node: Node, round_: int) -> None:
    async with node.ws() as client, node.ws() as other:
        await other.open()
        garbage = Garbage(SEED * 7 + round_, other, other)
        client.runtime_url = other.runtime_url
        for _ in range(BUNCH):
            frame = garbage.frame()
            text = frame if isinstance(frame, bytes) else frame.encode()
            if b"open" not in text:
                await client.send_raw(frame)
        client.runtime_url = runtime()
        opened = await client.ask("open", SESSION, sender=client.runtime_url, id="at last")
        assert code(opened) == 200
        await client.settled()
        assert len(await client.allocate()) == 1


async def test_the_log_shows_no_fault_of_the_node(node: Node) -> None:
    """Whatever has come to it so far was the sender's fault, as is a client that left in the middle
    of its handshake."""
    lines = [json.loads(each) for each in node.log().splitlines() if each.startswith("{")]
    faults = [each for each in lines if each["level"] in ("ERROR", "CRITICAL")]
    left = "ASGI callable returned without completing handshake."
    starting = "Service Unavailable: /health/ready"  # asked while it was not ready yet
    faults = [each for each in faults if each["message"] not in (left, starting)]
    assert faults == []
