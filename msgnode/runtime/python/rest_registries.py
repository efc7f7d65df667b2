"""Domain registries that are asked over REST: a Client-Server interface of protofly.

A message to `domain://registry.<domain>` of a domain that Settings.registries names goes there as
an HTTP request instead of through a stub; no code of that domain is loaded for it.

Rules
- It passes the runtime's policies as any message that goes out, and is answered as the node would.
- A sender's requests are sent one after the other, in order; AT_ONCE of all senders at a time.
- Each is answered within SECONDS of being posted, waiting included: else 504. More than MAX_WAITING
  at a time are answered 503. An answer has at most MAX_ANSWER bytes: else 502.
- The key of a domain goes to the base URL of that domain alone; no redirect is followed.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

from .fetch import FetchError, Request, fetch
from .message_bus import MessageBus, Outside
from .messages import Message, body_of
from .registry_calls import RegistryRefusal, body_of_answer, call_of
from .settings import Settings

SECONDS = 12.0
AT_ONCE = 8
MAX_WAITING = 100
MAX_ANSWER = 1_000_000


class RestRegistries:
    """In front of the way outside of one runtime's bus.

    Args:
        settings: which registries there are.
        bus: the runtime's.
        outside: where everything else goes.
    """

    def __init__(self, settings: Settings, bus: MessageBus, outside: Outside) -> None:
        self._settings = settings
        self._bus = bus
        self._outside = outside
        self._addresses = {
            f"domain://registry.{domain}{end}": domain
            for domain in settings.registries
            for end in ("", "/")
        }
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._last: dict[str, asyncio.Task[None]] = {}  # sender -> his latest request
        self._running: set[asyncio.Task[None]] = set()

    def send(self, message: Message, size: int, stub: str) -> str:
        """Take a message out; see Outside of the MessageBUS."""
        domain = self._addresses.get(message["to"].lower())
        if domain is None or message["type"] == "response":
            return self._outside.send(message, size, stub)
        if len(self._running) >= MAX_WAITING:
            text = f"Too many requests to the registry of {domain} wait."
            self._bus.refuse(message, 503, text)
            return ""
        sender = message["from"]
        task = asyncio.create_task(self._carry_out(message, domain, self._last.get(sender)))
        self._last[sender] = task
        self._running.add(task)

        def done(_: object) -> None:
            self._running.discard(task)
            if self._last.get(sender) is task:
                del self._last[sender]

        task.add_done_callback(done)
        return ""

    async def close(self) -> None:
        """Give up what is under way."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)

    async def _carry_out(
        self, message: Message, domain: str, before: asyncio.Task[None] | None
    ) -> None:
        deadline = time.monotonic() + SECONDS
        try:
            async with asyncio.timeout(SECONDS):
                if before is not None:
                    await asyncio.wait((before,))
                async with self._turns:
                    body = await self._asked(message, domain, deadline)
        except TimeoutError:
            text = f"The registry of {domain} does not answer in time."
            self._bus.refuse(message, 504, text)
        except (RegistryRefusal, FetchError) as error:
            self._bus.refuse(message, error.code, str(error))
        else:
            head = {"id": message["id"], "type": "response", "from": message["to"]}
            self._bus.post_message({**head, "to": message["from"], "body": body})

    async def _asked(self, message: Message, domain: str, deadline: float) -> Mapping[str, Any]:
        call = call_of(message["type"], body_of(message))
        content = None if call.body is None else json.dumps(call.body).encode()
        key = self._settings.registry_keys.get(domain)
        request = Request(call.method, content, {"Authorization": f"Bearer {key}"} if key else {})
        url = f"{self._settings.registries[domain].rstrip('/')}/{call.path}"
        seconds = min(self._settings.fetch, deadline - time.monotonic())
        answer = await fetch(url, seconds, MAX_ANSWER, request=request)
        try:
            found = json.loads(answer.body)
        except (ValueError, RecursionError):
            found = None
        return body_of_answer(call, answer.status, found)
