"""A device of tests: what `curl` would do, over real connections."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import httpx

from tests.client import LIMIT, Frame, runtime
from tests.node import Node

ALLOCATION = "domain://msg-node.localhost/address-allocation"


class Device:
    """One device with a session: `async with Device(node) as device`."""

    def __init__(
        self, node: Node | None, runtime_url: str = "", port: int = 0, key: str = ""
    ) -> None:
        self.key = key  # of an API, with which it opens its session
        self.runtime_url = runtime_url or runtime()
        self.token = ""
        port = node.port if node is not None else port
        self.http = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}/device/v1",
            headers={"Host": "localhost"},
            timeout=LIMIT + 10,
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        answer = await self.open()
        assert answer.status_code == 201, answer.text
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def open(self, **headers: str) -> httpx.Response:
        if self.key:
            headers.setdefault("Authorization", f"Bearer {self.key}")
        answer = await self.http.post(
            "/sessions", json={"runtimeURL": self.runtime_url}, headers=headers
        )
        if answer.status_code == 201:
            self.take(answer)
        return answer

    def take(self, answer: httpx.Response) -> None:
        """Use the token of an answer from now on."""
        self.token = answer.json()["token"]

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    async def post(self, message: Any, wait: int = 0, **headers: str) -> httpx.Response:
        """Post one message, or a list."""
        return await self.http.post(
            "/messages",
            params={"wait": wait},
            content=message if isinstance(message, bytes) else json.dumps(message),
            headers={**self.headers, **headers},
        )

    async def send(
        self, type_: str, to: str, body: Any = None, wait: int = 0, id_: Any = 1, **more: str
    ) -> httpx.Response:
        message = {"id": id_, "type": type_, "from": self.runtime_url, "to": to}
        return await self.post({**message, "body": body or {}}, wait, **more)

    async def allocate(self, number: int = 1) -> list[str]:
        """Addresses of the device's own."""
        body = {"value": {"number": number}, "scheme": "comm"}
        answer = await self.send("create", ALLOCATION, body, wait=10)
        assert answer.status_code == 200, answer.text
        allocated: list[str] = answer.json()["body"]["value"]["allocated"]
        return allocated

    async def poll(self, after: str = "", wait: int = 10, at_most: int = 100) -> httpx.Response:
        params: dict[str, str | int] = {"wait": wait, "max": at_most}
        if after:
            params["after"] = after
        return await self.http.get("/poll", params=params, headers=self.headers)

    @asynccontextmanager
    async def events(self, after: str = "") -> AsyncIterator[Events]:
        """The device's stream of events."""
        headers = dict(self.headers)
        if after:
            headers["Last-Event-ID"] = after
        async with self.http.stream("GET", "/events", headers=headers) as response:
            yield Events(response)


class Events:
    """Events of a stream, as they come."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.last_id = ""
        self._lines = response.aiter_lines()

    async def next(self) -> tuple[str, Any]:
        """The next event: its name and data. ("end", None) at the end of the stream."""
        name, data = "", ""
        async for line in self._lines:
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "id":
                self.last_id = value
            elif field == "event":
                name = value
            elif field == "data":
                data += value
            elif not line and name:
                return name, json.loads(data)
        return "end", None

    async def message(self) -> Frame:
        """The next message."""
        name, data = await self.next()
        assert name == "message", (name, data)
        frame: Frame = data
        return frame


def api_key(node: Node, *scopes: str) -> str:
    """A new API key of these scopes, as the console gives it."""
    lines = (
        "from datetime import timedelta; from django.utils import timezone; import uuid; "
        "from msgnode.identity import api_keys; from msgnode.models import ApiKey; "
        f"key = ApiKey(name=uuid.uuid4().hex, scopes={list(scopes)!r}, "
        "expires_at=timezone.now() + timedelta(days=1)); "
        "text = api_keys.issue(key); key.save(); print('KEY', text)"
    )
    told = node.manage("shell", "-c", lines)
    return next(line.split()[1] for line in told.splitlines() if line.startswith("KEY"))
