"""Workers in the test's own process: the real rooms, without a server or a database."""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgnode.bus.pipeline import Pipeline, Routing
from msgnode.bus.ports import NoPolicies
from msgnode.bus.replies import Replies
from msgnode.bus.response_guard import ResponseGuard
from msgnode.bus.routes import ComponentBook
from msgnode.bus.table import RoutingTable
from msgnode.core.digest import digest
from msgnode.core.errors import Unavailable
from msgnode.devices.api import DeviceApi, DeviceSettings
from msgnode.devices.devices import Devices
from msgnode.devices.outlet_store import PUSH, WEBHOOK, OutletRecovery, StoredOutlet
from msgnode.devices.outlets import Outlets
from msgnode.devices.push import PushKey, PushWakeups
from msgnode.devices.resumption import DeviceSessions
from msgnode.devices.webhook import Webhooks, WebhookTarget
from msgnode.net.http import HttpClient
from msgnode.sessions.connection import ConnectionSettings
from msgnode.sessions.connection_limits import ConnectionLimits
from msgnode.sessions.flow_control import FlowLimits
from msgnode.sessions.handshake import ConnectionParts
from msgnode.sessions.manager import SessionManager
from msgnode.sessions.session import LiveSession
from msgnode.sessions.session_factory import SessionSettings
from tests.fakes import FakeRecorder
from tests.sessions.doors import handshake

OUTBOX = 100_000
LOOPBACK = [ipaddress.ip_network("127.0.0.0/8")]


class Store:
    """A database that commits at once, or waits for `commits`, or is full."""

    is_full = False
    commits: asyncio.Future[None] | None = None

    def __getattr__(self, name: str) -> Any:
        def submit(*_: Any) -> asyncio.Future[None]:
            if self.commits is not None:
                return self.commits
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if self.is_full:
                done.set_exception(Unavailable("The disk is full."))
                done.exception()
            else:
                done.set_result(None)
            return done

        return submit


class Authorizer:
    """Admits whoever has a session."""

    def authenticate(self, message: Any, caller: Any) -> None:
        """Nobody brings an identity here."""

    def authorize(self, message: Any, caller: Any) -> Any:
        return caller.session, caller.session.speaker


@dataclass
class Remote:
    """A session of another worker, as this one's table has it."""

    session: LiveSession
    is_here = False

    @property
    def id(self) -> str:
        return self.session.id


class Others:
    """The other worker, reached without a link; of its next answers `lose` are lost."""

    def __init__(self) -> None:
        self.worker: Worker | None = None
        self.is_heard = True
        self.lose = 0
        self.calls = 0

    def hears(self, session_id: str) -> bool:
        return self.is_heard

    async def call(self, session_id: str, kind: str, text: bytes, seconds: float) -> bytes | None:
        assert self.worker is not None
        self.calls += 1
        answer = await self.worker.api.answer(text)
        if self.lose:
            self.lose -= 1
            return None
        return answer


class OutletRows:
    """An outlet store without a database."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], StoredOutlet] = {}

    async def keep_webhook(self, session_id: str, target: WebhookTarget, token: str) -> None:
        row = StoredOutlet(session_id, WEBHOOK, target.url, token, target)
        self.kept[session_id, WEBHOOK] = row

    async def keep_push(self, session_id: str, endpoint: str) -> None:
        self.kept[session_id, PUSH] = StoredOutlet(session_id, PUSH, endpoint)

    async def of(self, session_ids: Sequence[str]) -> list[StoredOutlet]:
        return [row for row in self.kept.values() if row.session_id in session_ids]

    def forget(self, session_id: str, kind: str = "") -> asyncio.Future[None]:
        for key in [each for each in self.kept if each[0] == session_id and kind in ("", each[1])]:
            del self.kept[key]
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


class Worker:
    """One worker."""

    def __init__(
        self, *, rate: int = 10_000, idle: float = 60.0, most_of_a_source: int = 50
    ) -> None:
        limits = SessionSettings("always", True, True, 60, OUTBOX, 50, 3, "domain://d")
        self.store = Store()
        store: Any = self.store
        self.table = RoutingTable()
        self.sessions = SessionManager(limits, self.table, store, lambda *_: None)
        self.door = handshake(limits, self.sessions, self.table, store)
        self.sockets = ConnectionLimits(100, most_of_a_source, self.sessions.is_source_banned)
        self.devices = Devices(self.sockets, self.sessions.queues, OUTBOX // 4, idle)
        self.sessions.on_closed.append(self.devices.session_closed)
        self.sessions.on_handed_off.append(self.devices.session_left)
        policies = NoPolicies()
        pipeline = Pipeline(
            Routing("d", self.table, ComponentBook(())),
            Authorizer(),  # type: ignore[arg-type]
            self.door,
            policies,
            FakeRecorder(),
            Replies(policies, 5.0),
            ResponseGuard(self.table, False, lambda _: None),
        )
        self.others = Others()
        self.parts = parts = ConnectionParts(
            pipeline.carry, self.sessions, self.door, self.sockets,
            ConnectionSettings(FlowLimits(rate, 10**9, 100), 60),
        )  # fmt: skip
        sessions = DeviceSessions(parts, None, self.devices)  # type: ignore[arg-type]
        self.alarms: list[str] = []
        self.outlets = OutletRows()
        rows: Any = self.outlets
        self.webhooks = Webhooks(HttpClient(LOOPBACK, 2.0, 50_000), lambda: True, rows.forget)
        self.wakeups = PushWakeups(
            PushKey("key", "mailto:o@example.org"), ["127.0.0.1", "127.0.0.2"], self.webhooks.http,
            self.devices, 60, lambda kind, *_: self.alarms.append(kind), rows.forget,
        )  # fmt: skip
        outlets = Outlets(50_000, rows, self.webhooks, lambda _: True, self.wakeups)
        self.recovery = OutletRecovery(
            rows, sessions, self.sessions.sessions.get, self.webhooks, self.wakeups, lambda _: True
        )
        self.webhooks.on_lost.append(self.recovery.arrived)
        self.api = DeviceApi(sessions, DeviceSettings((), 50_000, 60), self.others, outlets)

    async def stop(self) -> None:
        """End what it posts, and the connections for it."""
        await self.webhooks.stop()
        await self.wakeups.close()

    def beside(self, other: Worker) -> None:
        """Find what is not here at the other worker."""
        self.others.worker = other
        find = self.door.locator.find

        def found(runtime_url: str, token: str) -> Any:
            here = find(runtime_url, token)
            if here is not None:
                return here
            there = other.sessions.sessions.values()
            return next((Remote(each) for each in there if each.token_hash == digest(token)), None)

        self.door.locator.find = found  # type: ignore[method-assign]

    def session(self) -> LiveSession:
        """The one session here."""
        (session,) = self.sessions.sessions.values()
        return session

    def deliver(self, *values: int) -> None:
        """Messages for the session."""
        for value in values:
            self.session().deliver(json.dumps({"body": {"value": value}}).encode())

    def request(
        self, method: str, path: str, body: Any = None, token: str = "", **headers: str
    ) -> Asked:
        """Begin a request."""
        return Asked(self, method, path, body, token, headers)

    async def ask(
        self, method: str, path: str, body: Any = None, token: str = "", **headers: str
    ) -> Asked:
        """A request, and its whole answer."""
        asked = self.request(method, path, body, token, **headers)
        async with asyncio.timeout(20):
            await asked.task
        return asked

    async def open(self, name: str = "runtime://d/1") -> str:
        """The token of a new session."""
        asked = await self.ask("POST", "/sessions", {"runtimeURL": name})
        assert asked.status == 201, asked.body
        token: str = asked.json()["token"]
        return token


class Asked:
    """A request, and what has been answered so far."""

    def __init__(
        self, worker: Worker, method: str, path: str, body: Any, token: str, headers: dict[str, str]
    ) -> None:
        path, _, query = path.partition("?")
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            named["authorization"] = f"Bearer {token}"
        self.scope = {
            "type": "http",
            "method": method,
            "path": f"/device/v1{path}",
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in named.items()],
            "client": ("192.0.2.1", 1),
        }
        self.status = 0
        self.body = b""
        self.is_stalled = False
        self._content = [b"" if body is None else json.dumps(body).encode()]
        self._gone = asyncio.Event()
        self._news = asyncio.Event()
        self.task = asyncio.ensure_future(worker.api(self.scope, self._receive, self._send))

    def json(self) -> Any:
        return json.loads(self.body)

    def leave(self) -> None:
        """The client hangs up."""
        self._gone.set()

    async def says(self, wanted: bytes) -> None:
        """Wait until this has been answered."""
        async with asyncio.timeout(20):
            while wanted not in self.body:
                self._news.clear()
                await self._news.wait()

    async def _receive(self) -> dict[str, Any]:
        if self._content:
            return {"type": "http.request", "body": self._content.pop(), "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, event: dict[str, Any]) -> None:
        self.status = event.get("status", self.status)
        self.body += event.get("body", b"")
        self._news.set()
        if self.is_stalled:
            await asyncio.get_running_loop().create_future()
