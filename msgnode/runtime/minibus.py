"""A small bus for one Python runtime (reference 6): listeners by address, answers by request.

post_message  from inside the runtime: an address with listeners is local, any other goes to `*`,
              where a protostub takes it to its node. What a protostub brings in comes here too.
request       the same, and waits for the final answer.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
Listener = Callable[[Message], None]

ANSWER_SECONDS = 15.0


class MiniBus:
    def __init__(self) -> None:
        self._listeners: dict[str, list[Listener]] = {}
        self._waiting: dict[tuple[str, str], asyncio.Future[Message]] = {}
        self._ids = itertools.count(1)

    def add_listener(self, address: str, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every message to `address`; the result takes it away again."""
        self._listeners.setdefault(address, []).append(listener)
        return lambda: self._listeners[address].remove(listener)

    def post_message(self, message: Message) -> None:
        """Hand a message to who waits for it, to its listeners, else to `*`."""
        to = message["to"]
        if message["type"] == "response" and self._take_answer(message):
            return
        listeners = self._listeners.get(to, [])
        if not listeners and "via" not in message.get("body", {}):
            listeners = self._listeners.get("*", [])
        for listener in tuple(listeners):
            listener(message)

    async def request(self, message: Message, seconds: float = ANSWER_SECONDS) -> Message:
        """Send a request and wait for its final answer. Raises TimeoutError."""
        message = {**message, "id": message.get("id") or next(self._ids)}
        key = (message["from"], str(message["id"]))
        answer = self._waiting[key] = asyncio.get_running_loop().create_future()
        try:
            self.post_message(message)
            async with asyncio.timeout(seconds):
                return await answer
        finally:
            del self._waiting[key]

    def _take_answer(self, message: Message) -> bool:
        """Give an answer to who waits for it; a provisional one (below 200) is no answer yet."""
        answer = self._waiting.get((message["to"], str(message.get("id"))))
        if answer is None or answer.done():
            return False
        if int(message.get("body", {}).get("code", 200)) >= 200:
            answer.set_result(message)
        return True
