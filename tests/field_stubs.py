"""Runtimes that use the node as those with the field's stubs do, good and bad habits alike.

VertxRuntime (`/ws`)
- opens with its runtime URL and writes its session URL into `via` of all it sends;
- numbers its session frames by themselves, so that their ids are those of ordinary messages too;
- sends what is posted as soon as its socket is open, behind `open` but before the answer to it;
- says `close`, waits for nothing, and forgets its runtime URL: told to connect again, it says
  `re-open` without `from`, and only `via` of what it sends then names the runtime;
- takes up a session that it lost by `re-open` with the token.
MatrixRuntime (`/stub/connect?runtimeURL=`)
- counts itself as live when the socket is open, and reads no close code;
- says the command `disconnect` and waits for nothing.
Both may also lose the socket without a word, and both begin again with the same runtime URL at
once. What a stub says for itself it says as its own address, `hyperty-runtime://<domain>/protostub/<id>`,
which does not lie below the runtime's.
"""

from __future__ import annotations

import itertools
import json
from typing import Any, Self

from tests.client import ALLOCATION, REGISTRY, SESSION, SM, Client, Frame, code
from tests.node import Node


class FieldRuntime:
    """A runtime with one URL; `begin` is a new start of its stub, on a new socket."""

    def __init__(self, node: Node, url: str) -> None:
        self.node = node
        self.url = url
        self.stub_url = f"hyperty-runtime://localhost/protostub/{url.rpartition('/')[2]}"
        self.client: Client

    async def begin(self) -> Self:
        raise NotImplementedError

    async def leave(self) -> None:
        """Say good-bye in the words of the handshake, and wait for no answer."""
        raise NotImplementedError

    async def drop(self) -> None:
        """Lose the socket without a word."""
        self.client.cut()

    async def ask(self, type_: str, to: str, body: Frame | None = None, **more: Any) -> Frame:
        sender = more.pop("sender", f"{self.url}/ua")
        return await self.client.ask(type_, to, body or {}, sender=sender, **more)

    # --- what the suites of the field do ----------------------------------------------------------

    async def work(self, hyperty: str) -> None:
        """What a runtime does when it has come: get addresses, listen, talk to itself."""
        wanted = {"scheme": "connection", "value": {"number": 1}}
        sender = f"{self.stub_url}/registry/allocation"
        answer = await self.ask("create", ALLOCATION, wanted, sender=sender)
        assert (code(answer), answer["to"]) == (200, sender), answer
        (allocated,) = answer["body"]["value"]["allocated"]
        claimed = await self.ask("subscribe", SM, {"resources": [hyperty]})
        assert code(claimed) == 200, claimed
        for to in (allocated, hyperty):
            id_ = await self.client.send("create", to, {"value": to}, sender=f"{self.url}/ua")
            heard = await self.client.expect(id=id_)
            assert (heard["type"], heard["to"]) == ("create", to), heard

    async def register(self, hyperty: str, user: str, **more: Any) -> Frame:
        value = {
            "url": hyperty,
            "user": user,
            "descriptor": "hyperty-catalogue://localhost/.well-known/hyperty/Field",
            "expires": 3600,
            "status": "live",
            "resources": ["chat"],
            "dataSchemes": ["comm"],
            "runtime": self.url,
            **more,
        }
        return await self.ask("create", REGISTRY, {"value": value})

    async def find(self, resource: str) -> Frame:
        return await self.ask("read", REGISTRY, {"resource": resource})


class VertxRuntime(FieldRuntime):
    async def begin(self) -> Self:
        self.client = await self.node.ws().connect()
        self.client.runtime_url = self.url
        self._ids = itertools.count(1)
        answer = await self._session_frame("open", self.url)
        assert code(answer) == 200, answer
        self.client.token = answer["body"]["runtimeToken"]
        return self

    async def leave(self) -> None:
        frame = {"id": next(self._ids), "type": "close", "from": self.client.session_url}
        await self.client.send_raw(json.dumps({**frame, "to": SESSION}))

    async def ask(self, type_: str, to: str, body: Frame | None = None, **more: Any) -> Frame:
        via = {**(body or {}), "via": self.client.session_url}
        return await super().ask(type_, to, via, **more)

    async def begin_and_ask(self, type_: str, to: str, body: Frame) -> Frame:
        """Post something while the socket opens; the answer to it."""
        self.client = await self.node.ws().connect()
        self.client.runtime_url = self.url
        self._ids = itertools.count(1)
        opened = {"id": next(self._ids), "type": "open", "from": self.url, "to": SESSION}
        await self.client.send_raw(json.dumps(opened))
        posted = {"id": 1, "type": type_, "from": f"{self.url}/ua", "to": to}
        await self.client.send_raw(json.dumps({**posted, "body": {**body, "via": self.url}}))
        answer = await self.client.expect(type="response", sender=SESSION)
        self.client.token = answer["body"]["runtimeToken"]
        return await self.client.expect(type="response", sender=to)

    async def connect_again(self) -> Self:
        """The same stub, which has said `close`, is told to connect."""
        self.client = await self.node.ws().connect()
        self.client.runtime_url = self.url
        answer = await self._session_frame("re-open", "")
        assert code(answer) == 200, answer
        self.client.token = answer["body"]["runtimeToken"]
        return self

    async def come_back(self) -> Self:
        """The same stub, which has lost its socket, opens another."""
        before, self.client = self.client, await self.node.ws().connect()
        self.client.runtime_url = self.url
        answer = await self._session_frame("re-open", before.session_url)
        assert code(answer) == 200, answer
        self.client.token = answer["body"].get("runtimeToken", before.token)
        return self

    async def _session_frame(self, type_: str, sender: str) -> Frame:
        id_ = next(self._ids)
        frame = {"id": id_, "type": type_, "to": SESSION} | ({"from": sender} if sender else {})
        await self.client.send_raw(json.dumps(frame))
        return await self.client.expect(type="response", sender=SESSION, id=id_)


class MatrixRuntime(FieldRuntime):
    async def begin(self) -> Self:
        self.client = await self.node.stub(self.url).connect()
        return self

    async def leave(self) -> None:
        command = {"cmd": "disconnect", "data": {"runtimeURL": self.url}}
        await self.client.send_raw(json.dumps(command))


RUNTIMES: dict[str, type[FieldRuntime]] = {"ws": VertxRuntime, "stub": MatrixRuntime}
