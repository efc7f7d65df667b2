"""`/admin/live/…`: the socket of a console's page, as a Channels consumer.

Rules
- It is opened by a page of this node, with the console's log-in and the right to see sessions; all
  else is answered 403 before there is a socket.
- Every text is acknowledged by the page. Of a page that is AHEAD texts behind, further ones are
  missed, counted, and told with the next; after PATIENCE seconds without a word the socket is
  closed. So a browser that is frozen costs no memory.
- What a page says is small: an acknowledgement, or the length of the charts it wants, of which one
  request at a time is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

import msgspec
from channels.consumer import AsyncConsumer
from django.db import DatabaseError

from msgnode.core.faults import FAULTS
from msgnode.sessions.outbox import Link

from . import access, domains, traces
from .feed import OVERVIEW, Feed, FeedFull

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
History = Callable[[str, str], Awaitable[list[dict[str, Any]]]]
"""The points of the charts of a topic, of a length."""

AHEAD = 3
PATIENCE = 30.0
LONGEST = 200
SLOW, BUSY, BAD = 4408, 4429, 4400


class _Said(msgspec.Struct):
    """What a page says."""

    ack: bool = False
    length: str = ""


class LiveConsumer(AsyncConsumer):
    """One page."""

    def __init__(
        self,
        feed: Feed,
        history: History,
        allowed: Callable[[list[str]], set[str]] = access.watchers_allowed,
        patience: float = PATIENCE,
    ) -> None:
        self._feed = feed
        self._history = history
        self._allowed = allowed
        self._patience = patience
        self.key = ""
        self.topic = OVERVIEW
        self.missed = 0
        self._unheard = 0
        self._heard_at = monotonic()
        self._link: Link
        self._is_over = False
        self._answering: asyncio.Task[None] | None = None

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Serve the page until it leaves or may watch no longer."""
        if (await receive())["type"] != "websocket.connect":
            return
        if not await self._may_watch(scope):
            await send({"type": "websocket.close", "code": 4403})
            return
        kwargs = (scope.get("url_route") or {}).get("kwargs", {})
        if "session" in kwargs:
            self.topic = kwargs["session"].hex
        elif kwargs.get("is_domains"):
            self.topic = domains.TOPIC
        elif kwargs.get("is_traces"):
            self.topic = traces.topic_of(scope.get("query_string", b"").decode("latin1"))
        await send({"type": "websocket.accept"})
        self._link = link = scope["extensions"]["msgnode.link"]
        try:
            self._join()
            await link.run(self.heard)
        finally:
            self._feed.leave(self)
            if self._answering is not None:
                self._answering.cancel()

    def _join(self) -> None:
        self._heard_at = monotonic()
        try:
            self._feed.join(self)
        except FeedFull:
            self.end(BUSY, "too many consoles")

    # --- for the feed -----------------------------------------------------------------------------

    def offer(self, text: str) -> None:
        """Take a text, or miss it."""
        if self._unheard >= AHEAD:
            self.missed += 1
            if monotonic() - self._heard_at > self._patience:
                self.end(SLOW, "the page does not read")
            return
        if self.missed:
            missed, self.missed = self.missed, 0
            self._feed.missed += missed
            text = f'{text[:-1]},"missed":{missed}}}'
        self._write(text)

    def end(self, code: int, why: str) -> None:
        """Close the socket."""
        self._feed.leave(self)
        if not self._is_over:
            self._is_over = True
            self._link.close(code, why)

    # --- the socket -------------------------------------------------------------------------------

    def heard(self, frame: bytes) -> None:
        """What the page says."""
        if self._is_over:
            return
        try:
            if len(frame) > LONGEST:
                raise msgspec.DecodeError("too long")
            said = msgspec.json.decode(frame, type=_Said)
        except msgspec.DecodeError:
            self.end(BAD, "not understood")
            return
        self._heard_at = monotonic()
        if said.ack:
            self._unheard = max(0, self._unheard - 1)
        if said.length and (self._answering is None or self._answering.done()):
            self._answering = asyncio.create_task(self._tell_history(said.length))

    async def _may_watch(self, scope: dict[str, Any]) -> bool:
        self.key = access.session_key(scope)
        if not self.key or not access.is_own_origin(scope):
            return False
        try:
            return self.key in await asyncio.to_thread(self._allowed, [self.key])
        except DatabaseError:
            return False

    async def _tell_history(self, length: str) -> None:
        """The points of the charts of that length, None if the database does not answer."""
        with FAULTS.kept_to("console"):
            try:
                points: list[dict[str, Any]] | None = await self._history(self.topic, length)
            except KeyError:
                self.end(BAD, "no such length")
                return
            except DatabaseError:
                points = None
            whole = {"type": "history", "length": length, "points": points}
            if self._unheard <= AHEAD:
                self._write(msgspec.json.encode(whole).decode())

    def _write(self, text: str) -> None:
        if not self._is_over:
            self._unheard += 1
            self._link.write(text.encode())
