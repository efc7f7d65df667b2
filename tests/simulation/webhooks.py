"""A network server, in the simulation: it has a session over HTTP and is posted its messages.

It observes the objects of runtimes. It drops what comes under a known id, as receivers of webhooks
do; it is away for a time, or its answers are lost.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from django.utils import timezone

from msgnode.devices.http import ROOT
from msgnode.identity import api_keys
from msgnode.identity.service_accounts import CONNECT, MANY
from msgnode.models import ApiKey
from msgnode.net.http import Answer, NoAnswer

from .runtimes import SUBSCRIPTIONS, Crowd
from .workers import Site, WorkerProcess
from .world import Machine

HOST = "server.example"
DELAY = (0.002, 0.05)
PATIENCE = 15.0
"""Seconds that the server waits for an answer, longer than the node does."""
NO_ANSWER = 10.0


class NetworkServer:
    """The server, with what a Runtime has as a listener.

    Attributes:
        is_away: nobody answers at its webhook.
        loses_answers: it has got what was posted, and the node does not hear of that.
    """

    def __init__(self, site: Site, seed: int) -> None:
        self.site, self.world = site, site.world
        self.session = 0
        self.hears: dict[str, float] = {}
        self.gaps: list[float] = []
        self.crowd: Crowd
        self.is_away = self.loses_answers = self.has_webhook = False
        self._key, self._token = _key(site), ""
        self._chance = random.Random(f"server of {seed}")
        self._asks = self._under_way = 0
        self._seen: set[str] = set()
        self._delivered: dict[tuple[str, int, str], int] = {}
        site.server = self
        self.world.after(1.5, self._act)

    def __repr__(self) -> str:
        return "the server"

    # --- what it asks the node --------------------------------------------------------------------

    def _act(self) -> None:
        self.world.after(1.0, self._act)
        if self._under_way:
            return
        if not self._token:
            self._ask("POST", "sessions", {"runtimeURL": f"runtime://{self.site.domain}/server"},
                      self._opened, self._key)  # fmt: skip
        elif not self.has_webhook:
            self._ask("PUT", "webhook", {"url": f"https://{HOST}/hook"}, self._set)
        else:
            known = (f"{each}/changes" for each in sorted(self.crowd.holders))
            new = [each for each in known if each not in self.hears]
            if new:
                self._subscribe(new[0])

    def _subscribe(self, topic: str) -> None:
        def answered(status: int, _: Any) -> None:
            if status == 200:
                self.hears[topic] = self.world.now

        to = SUBSCRIPTIONS.format(self.site.domain)
        me, body = f"runtime://{self.site.domain}/server", {"resources": [topic]}
        message = {"id": self._asks, "type": "subscribe", "from": me, "to": to, "body": body}
        self._ask("POST", "messages", message, answered)

    def _opened(self, status: int, told: Any) -> None:
        if status == 201:
            self._token, self.session = told["token"], self.session + 1

    def _set(self, status: int, told: Any) -> None:
        self.has_webhook = status == 200
        self.world.note(f"the server set its webhook: {status} {told if status != 200 else ''}")

    def _forget_session(self) -> None:
        self._token, self.has_webhook, self.hears = "", False, {}
        self.session += 1

    def _ask(
        self, method: str, path: str, body: Any, then: Callable[[int, Any], None], bearer: str = ""
    ) -> None:
        """Send a request to some worker, one at a time."""
        serving = [each for each in self.site.workers if each.is_serving]
        if not serving:
            return
        worker = self._chance.choice(serving)
        self._asks += 1
        self._under_way = number = self._asks

        def answered(status: int, text: bytes) -> None:
            if self._under_way == number:
                self._under_way = 0
                if status == 401:
                    self.world.note("the server has lost its session")
                    self._forget_session()
                else:
                    then(status, json.loads(text or b"null"))

        scope = {
            "method": method, "path": f"{ROOT}/{path}", "client": ["10.2.0.1", 1],
            "query_string": b"wait=8" if path == "messages" else b"",
            "headers": [(b"authorization", f"Bearer {bearer or self._token}".encode())],
        }  # fmt: skip
        self.world.after(PATIENCE, lambda: answered(0, b""))
        asked = _asked(worker, scope, json.dumps(body).encode(), self._back(answered))
        machine = worker.machine
        assert machine is not None
        self.world.after(self._delay(), lambda: _on(machine, lambda: machine.create_task(asked())))

    def _back(self, answered: Callable[[int, bytes], None]) -> Callable[[int, bytes], None]:
        return lambda *told: self.world.after(self._delay(), lambda: answered(*told))

    def _delay(self) -> float:
        return self._chance.uniform(*DELAY)

    # --- what the node posts ----------------------------------------------------------------------

    async def posted(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """What a worker is answered that posts something."""
        machine = Machine.current
        assert machine is not None
        done = machine.create_future()
        id_ = headers["webhook-id"]

        def arrives() -> None:
            if self.is_away:
                return
            answer = self._takes(id_, json.loads(body))
            if not self.loses_answers:
                self.world.after(self._delay(), lambda: _on(machine, lambda: settle(answer)))

        def settle(answer: bytes) -> None:
            if not done.done():
                done.set_result(Answer(200, answer))

        self.world.after(self._delay(), arrives)
        try:
            async with asyncio.timeout(NO_ANSWER):
                answer: Answer = await done
        except TimeoutError:
            raise NoAnswer("It did not answer.") from None
        return answer

    def _takes(self, id_: str, told: dict[str, Any]) -> bytes:
        if told.get("type") == "challenge":
            return json.dumps({"challenge": told["challenge"]}).encode()
        if id_ in self._seen:
            return b""
        self._seen.add(id_)
        if told["gap"]:
            self.gaps.append(self.world.now)
            self.world.note("the server is told of a gap")
        for each in told["messages"]:
            self._got(each)
        if "close" in told:
            self.world.note(f"the server is told of its end: {told['close']}")
            self._forget_session()
        return b""

    def _got(self, message: dict[str, Any]) -> None:
        value = message["body"].get("value")
        if value == "gap":
            self.gaps.append(self.world.now)
        if message["type"] != "update" or not isinstance(value, int):
            return
        sent = self.crowd.sent[value]
        if any(who is self for who, _ in sent.got):
            self.crowd.problem(f"{self} got the event {sent.number} of {sent.by} twice")
        sent.got.append((self, self.world.now))  # type: ignore[arg-type]
        key = repr(sent.by), sent.session, sent.to
        if sent.number < self._delivered.get(key, 0):
            self.crowd.problem(
                f"{self} got the event {sent.number} of {sent.by} behind {self._delivered[key]}"
            )
        self._delivered[key] = max(sent.number, self._delivered.get(key, 0))


def _on(machine: Machine, call: Callable[[], object]) -> None:
    if not machine.is_dead:
        machine.call_soon(call)


def _asked(
    worker: WorkerProcess,
    scope: dict[str, Any],
    body: bytes,
    answered: Callable[[int, bytes], None],
) -> Callable[[], Any]:
    """A request to the API of devices of a worker."""
    node = worker.node
    assert node is not None

    async def ask() -> None:
        parts, status = [], 0
        unread = [body]

        async def receive() -> dict[str, Any]:
            if not unread:
                await asyncio.get_running_loop().create_future()
            return {"type": "http.request", "body": unread.pop()}

        async def send(event: dict[str, Any]) -> None:
            nonlocal status
            status = event.get("status", status)
            parts.append(event.get("body", b""))

        await node.parts.device_api(scope, receive, send)
        answered(status, b"".join(parts))

    return ask


def _key(site: Site) -> str:
    """A key of the node, with which sessions may have webhooks."""
    site.database.use()
    expires = timezone.now() + timedelta(days=365)
    key = ApiKey(name="server", scopes=[CONNECT, MANY], expires_at=expires)
    text = api_keys.issue(key)
    key.save()
    return text
