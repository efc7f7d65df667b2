"""Limits the bodies of HTTP requests before anything stores them, on any server."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from msgnode.core.explanations import ERRORS

Application = Callable[..., Awaitable[None]]


class BodyLimit:
    """An ASGI application that answers 413 to a body of more than `at_most` bytes.

    One that says its length is refused unread; of any other the application hears, once it is too
    long, that the client has gone.
    """

    def __init__(self, application: Application, at_most: int) -> None:
        self._application = application
        self._at_most = at_most

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Pass a request on, with its body bounded."""
        said = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if said.isdigit() and int(said) > self._at_most:
            await self._refuse(send)
            return
        size = 0
        is_answered = is_refused = False

        async def bounded() -> dict[str, Any]:
            nonlocal size, is_refused
            if is_refused:
                return {"type": "http.disconnect"}
            event: dict[str, Any] = await receive()
            size += len(event.get("body", b""))
            if size <= self._at_most:
                return event
            is_refused = True
            if not is_answered:
                await self._refuse(send)
            return {"type": "http.disconnect"}

        async def watched(event: dict[str, Any]) -> None:
            nonlocal is_answered
            is_answered = True
            if not is_refused:
                await send(event)

        await self._application(scope, bounded, watched)

    async def _refuse(self, send: Any) -> None:
        detail = f"The body of a request may have at most {self._at_most} bytes."
        place = f"/problems/errors/{ERRORS[413].name}"
        problem = {"type": place, "title": "Content Too Large", "status": 413}
        body = json.dumps({**problem, "detail": detail}).encode()
        headers = [
            (b"content-type", b"application/problem+json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": body})
