"""The one way to back-ends over HTTP: time-outs, retries and errors of the node.

A request is tried again after an error of transport only (the connection, not an answer), with a
short pause that doubles; every request here is idempotent. What fails for good raises
GatewayTimeout with a text for the sender of the message; what is no answer of the kind expected
raises BadGateway. Connections are bounded and reused; redirects are not followed.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

import httpx

from msgnode.core.errors import BadGateway, GatewayTimeout

log = logging.getLogger(__name__)

MAX_ANSWER = 8 * 1024 * 1024
_PAUSE = 0.05
_LONGEST_REFUSAL = 1000  # characters


@dataclass(frozen=True, slots=True)
class Answer:
    """A status and the body's JSON, None where there was none; a refusal's text as it came."""

    status: int
    body: Any
    text: str = ""


class BackEnd:
    """A back-end by its base URL. `unreachable` is what senders are told."""

    def __init__(
        self,
        base: str,
        unreachable: str,
        timeout: float,
        retries: int,
        connections: int,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._base = base.rstrip("/")
        self._unreachable = unreachable
        self._retries = retries
        self._client: httpx.AsyncClient | None = None
        self._options: dict[str, Any] = {
            "timeout": httpx.Timeout(timeout),
            "limits": httpx.Limits(max_connections=connections),
            "transport": transport,
        }

    async def send(self, method: str, path: str, content: bytes = b"") -> Answer:
        """One request; `path` is sent as it stands (percent-encoded)."""
        for attempt in range(self._retries + 1):
            if attempt:
                await asyncio.sleep(_PAUSE * 2 ** (attempt - 1))
            try:
                response = await self._open().request(
                    method,
                    self._base + path,
                    content=content,
                    headers={"Content-Type": "application/json"},
                )
                return _answer(response)
            except httpx.TransportError as error:
                log.warning("A back-end is out of reach: %r", error, extra={"base": self._base})
        raise GatewayTimeout(self._unreachable)

    async def close(self) -> None:
        """Close the connections that are kept open."""
        if self._client is not None:
            await self._client.aclose()

    def _open(self) -> httpx.AsyncClient:
        """The client, made on the loop that uses it."""
        if self._client is None:
            self._client = httpx.AsyncClient(**self._options)
        return self._client


def _answer(response: httpx.Response) -> Answer:
    content = response.content
    if len(content) > MAX_ANSWER:
        raise BadGateway("The back-end's answer is too long.")
    if not content:
        return Answer(response.status_code, None)
    try:
        return Answer(response.status_code, response.json())
    except (ValueError, RecursionError):
        if response.is_success:
            raise BadGateway("The back-end gave no valid answer.") from None
        return Answer(response.status_code, None, response.text[:_LONGEST_REFUSAL])
