"""Who has a session over HTTP, in the simulation: a network server, which is posted its messages,
and a phone, which sleeps until its push service wakes it, and then fetches them.

They observe the objects of runtimes. The server drops what comes under a known id, as receivers of
webhooks do. What the node posts to, the server or the push service, is away for a time, or its
answers are lost.
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

DELAY = (0.002, 0.05)
PATIENCE = 15.0
"""Seconds that a device waits for an answer, longer than the node does."""
NO_ANSWER = 10.0
PUSHED = 0.3
"""Seconds until a phone is woken, at most."""


class Device:
    """A device, with what a Runtime has as a listener.

    Attributes:
        is_ready: whether the node knows where it is reached.
        is_away: nobody answers there.
        loses_answers: what was sent there has come, and the node does not hear of that.
    """

    kind = outlet = ""
    may_repeat = False

    def __init__(self, site: Site, seed: int) -> None:
        self.site, self.world = site, site.world
        self.session = 0
        self.hears: dict[str, float] = {}
        self.gaps: list[float] = []
        self.crowd: Crowd
        self.is_away = self.loses_answers = self.is_ready = False
        self._runtime_url = f"runtime://{site.domain}/device"
        self._chance = random.Random(f"{self.kind} of {seed}")
        self._asks = 0
        self._delivered: dict[tuple[str, int, str], int] = {}
        site.device = self
        self.world.after(1.5, self._act)

    def __repr__(self) -> str:
        return f"the {self.kind}"

    def _act(self) -> None:
        raise NotImplementedError

    def _new_topic(self) -> str:
        """One of those that it does not hear yet, "" if there is none."""
        known = (f"{each}/changes" for each in sorted(self.crowd.holders))
        return next((each for each in known if each not in self.hears), "")

    def _subscription(self, topic: str) -> dict[str, Any]:
        to = SUBSCRIPTIONS.format(self.site.domain)
        return {"id": self._asks, "type": "subscribe", "from": self._runtime_url, "to": to,
                "body": {"resources": [topic]}}  # fmt: skip

    def _got(self, message: dict[str, Any]) -> None:
        value = message["body"].get("value")
        if value == "gap":
            self.gaps.append(self.world.now)
        if message["type"] != "update" or not isinstance(value, int):
            return
        sent = self.crowd.sent[value]
        if any(who is self for who, _ in sent.got):
            if self.may_repeat:
                return
            self.crowd.problem(f"{self} got the event {sent.number} of {sent.by} twice")
        sent.got.append((self, self.world.now))  # type: ignore[arg-type]
        key = repr(sent.by), sent.session, sent.to
        if sent.number < self._delivered.get(key, 0):
            self.crowd.problem(
                f"{self} got the event {sent.number} of {sent.by} behind {self._delivered[key]}"
            )
        self._delivered[key] = max(sent.number, self._delivered.get(key, 0))


class HttpDevice(Device):
    """One that has a session over HTTP."""

    url = ""

    def __init__(self, site: Site, seed: int) -> None:
        super().__init__(site, seed)
        self._key, self._token = _key(site), ""
        self._under_way = 0

    # --- what it asks the node --------------------------------------------------------------------

    def _act(self) -> None:
        self.world.after(1.0, self._act)
        if self._under_way:
            return
        if not self._token:
            asked = {"runtimeURL": self._runtime_url}
            self._ask("POST", "sessions", asked, self._opened, self._key)
        elif not self.is_ready:
            self._ask("PUT", self.outlet, {"url": self.url, "endpoint": self.url}, self._set)
        else:
            self._go_on()

    def _go_on(self) -> None:
        if topic := self._new_topic():
            self._subscribe(topic)

    def _subscribe(self, topic: str) -> None:
        def answered(status: int, _: Any) -> None:
            if status == 200:
                self.hears[topic] = self.world.now

        message = self._subscription(topic)
        self._ask("POST", "messages", message, answered, query="wait=8")

    def _opened(self, status: int, told: Any) -> None:
        if status == 201:
            self._token, self.session = told["token"], self.session + 1

    def _set(self, status: int, told: Any) -> None:
        self.is_ready = status in (200, 201)
        self.world.note(f"{self} set its {self.outlet}: {status} {'' if self.is_ready else told}")

    def _forget_session(self, told: Any) -> None:
        self.world.note(f"{self} has lost its session: {told}")
        self._token, self.is_ready, self.hears = "", False, {}
        self.session += 1

    def _ask(
        self, method: str, path: str, body: Any, then: Callable[[int, Any], None],
        bearer: str = "", query: str = "",
    ) -> None:  # fmt: skip
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
                told = json.loads(text or b"null")
                if status == 401:
                    self._forget_session(told)
                else:
                    then(status, told)

        scope = {
            "method": method, "path": f"{ROOT}/{path}", "client": ["10.2.0.1", 1],
            "query_string": query.encode(),
            "headers": [(b"authorization", f"Bearer {bearer or self._token}".encode())],
        }  # fmt: skip
        self.world.after(PATIENCE, lambda: answered(0, b""))
        asked = _asked(worker, scope, json.dumps(body).encode(), self._back(answered))
        machine = worker.machine
        assert machine is not None
        self.world.after(self._delay(), lambda: on(machine, lambda: machine.create_task(asked())))

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

        def arrives() -> None:
            if self.is_away:
                return
            answer = self._takes(body, headers)
            if not self.loses_answers:
                self.world.after(self._delay(), lambda: on(machine, lambda: settle(answer)))

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

    def _takes(self, body: bytes, headers: Mapping[str, str]) -> bytes:
        raise NotImplementedError

    def _hear(self, told: dict[str, Any]) -> None:
        """Take events, as the node tells them."""
        if told["gap"]:
            self.gaps.append(self.world.now)
            self.world.note(f"{self} is told of a gap")
        for each in told["messages"]:
            self._got(each)


class NetworkServer(HttpDevice):
    """It is posted its messages."""

    kind, outlet, url = "network server", "webhook", "https://server.example/hook"
    _seen: frozenset[str] = frozenset()

    def _takes(self, body: bytes, headers: Mapping[str, str]) -> bytes:
        id_, told = headers["webhook-id"], json.loads(body)
        if told.get("type") == "challenge":
            return json.dumps({"challenge": told["challenge"]}).encode()
        if id_ not in self._seen:
            self._seen |= {id_}
            self._hear(told)
            if "close" in told:  # only at the end of its session
                self._forget_session(told["close"])
        return b""


class Phone(HttpDevice):
    """It sleeps until it is woken, and then fetches until there is nothing more."""

    kind, outlet, url = "phone", "push", "https://web.push.apple.com/phone"
    _is_awake, _next = False, ""

    def _takes(self, body: bytes, headers: Mapping[str, str]) -> bytes:
        self.world.after(self._chance.uniform(0.0, PUSHED), self._wake)
        return b""

    def _wake(self) -> None:
        self._is_awake = True
        if not self._under_way:
            self._go_on()

    def _go_on(self) -> None:
        if self._is_awake and self._token:
            wait = self._chance.choice((0, 0, 2))
            after = f"&after={self._next}" if self._next else ""
            self._is_awake = False
            self._ask("GET", "poll", None, self._fetched, query=f"wait={wait}{after}")
        else:
            super()._go_on()

    def _fetched(self, status: int, told: Any) -> None:
        if status == 200:
            self._next = told["next"]
            self._hear(told)
        if status != 204:
            self._is_awake = True  # there may be more; or it comes again in a moment
        if status == 200 and self._token:
            self._go_on()

    def _forget_session(self, told: Any) -> None:
        super()._forget_session(told)
        self._next = ""


def on(machine: Machine, call: Callable[[], object]) -> None:
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
