"""Registries behind the bus of a runtime, for tests of the Graph Connector; records of others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bus_harness import Bench, answer
from cryptography.hazmat.primitives.asymmetric import ec

from msgnode.runtime.python.graph.contacts import Contacts
from msgnode.runtime.python.graph.errors import GraphError
from msgnode.runtime.python.graph.graph_connector import GraphConnector
from msgnode.runtime.python.messages import Message
from registry.global_registry import guids, signed

VECTOR = json.loads((Path(__file__).parents[2] / "js/tests/words.json").read_text())
WORDS = VECTOR["words"]
ALICE = "user://a.example/alice"
Answer = dict[str, Any] | None


class Registry:
    """A global registry and domain registries, behind the bus of a runtime.

    `says` changes an answer on its way (None: none comes); `before_put` runs before a record is
    stored, as if somebody else had been faster.
    """

    def __init__(self, *benches: Bench) -> None:
        self.stored: dict[str, str] = {}
        self.entries: dict[str, Any] = {}
        self.asked: list[Message] = []
        self.says: Callable[[Message, Answer], Answer] = lambda message, said: said
        self.before_put: list[Callable[[], None]] = []
        for bench in benches:
            self.serve(bench)

    def serve(self, bench: Bench) -> None:
        def send(message: Message, size: int, stub: str) -> str:
            self.asked.append(message)
            asyncio.get_running_loop().call_soon(reply, message)
            return bench.out.stub

        def reply(message: Message) -> None:
            said = self.says(message, self._answer(message))
            if said is not None:
                back = answer(message["from"], message["id"], said, message["to"])
                bench.bus.receive(back, bench.out.stub)

        bench.out.send = send  # type: ignore[method-assign]

    def _answer(self, message: Message) -> dict[str, Any]:
        body = message["body"]
        if message["to"].startswith("domain://registry."):
            found = self.entries.get(message["to"].removeprefix("domain://registry."))
            return {"code": 200, "value": found} if found else {"code": 404, "desc": "Not Found"}
        if message["type"] == "read":
            jwt = self.stored.get(body["guid"])
            known = {"Code": 200, "code": 200, "Value": jwt, "value": jwt}
            return known if jwt else {"Code": 404, "code": 404, "Description": "GUID not found."}
        return self._put(body)

    def _put(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.before_put:
            self.before_put.pop(0)()
        record = signed.read(body["jwt"])
        assert record.guid == body["guid"] == body["resource"]
        there = self.stored.get(record.guid, "")
        digest = signed.digest(there) if there else ""
        if body.get("previous", digest) != digest:
            return {
                "Code": 409,
                "code": 409,
                "Description": "The record has been changed in the meantime.",
            }
        assert not there or record.last_update > signed.read(there).last_update
        self.stored[record.guid] = record.jwt
        return {"Code": 200, "code": 200, "Description": "OK"}


def connector(bench: Bench, storage: dict[str, str] | None = None) -> GraphConnector:
    failures: list[str] = []
    return GraphConnector(bench.bus, Contacts("c", storage, lambda *why: failures.append(why[0])))


def jwt_of(number: int, encoding: str = "raw", **changes: Any) -> str:
    """A record of another person, whose key follows from a number."""
    key = ec.derive_private_key(number, ec.SECP256K1())
    record = {
        **{"schemaVersion": 1, "guid": guid_of(number), "salt": "s", "userIDs": []},
        **{"lastUpdate": "2026-01-01T00:00:00Z", "timeout": "2090-01-01T00:00:00Z"},
        **{"publicKey": signed.public_text(key), "active": 1, "revoked": 0},
        **{"defaults": {"voice": "", "chat": "", "video": ""}, **changes},
    }
    return signed.sign(record, key, encoding)


def guid_of(number: int) -> str:
    key = ec.derive_private_key(number, ec.SECP256K1())
    return guids.derive(signed.public_text(key), "s")


def of(coroutine: Any) -> int:
    """The code of the GraphError that it raises."""
    with pytest.raises(GraphError) as caught:
        asyncio.run(coroutine)
    return caught.value.code
