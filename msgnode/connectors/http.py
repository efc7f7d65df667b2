"""The HTTP client for back-ends, with timeouts, retries and errors of the node.

A request is retried only after a transport error (the connection, not an answer), with pauses that
double; every request here is idempotent. A final failure raises GatewayTimeout with a text for the
sender of the message; an unexpected kind of answer raises BadGateway. Connections are bounded and
reused; redirects are not followed. An attempt takes at most `timeout` seconds, and no more of an
answer is read than allowed; compressed answers are refused, because their length is known too late.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from msgnode.core.errors import BadGateway, GatewayTimeout

log = logging.getLogger(__name__)

MAX_ANSWER = 8 * 1024 * 1024
UNCOMPRESSED = {"Accept-Encoding": "identity"}
_PAUSE = 0.05
_LONGEST_REFUSAL = 1000  # characters


@dataclass(frozen=True, slots=True)
class Answer:
    """A status and the body's JSON, None where there was none; a refusal's text as it came."""

    status: int
    body: Any
    text: str = ""


class BackEnd:
    """A back-end by its base URL. `unreachable` is the error text for senders."""

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
        self._timeout = timeout
        self._client: httpx.AsyncClient | None = None
        self._options: dict[str, Any] = {
            "timeout": httpx.Timeout(timeout),
            "limits": httpx.Limits(max_connections=connections),
            "transport": transport,
        }

    async def send(self, method: str, path: str, content: bytes = b"") -> Answer:
        """Send a request; `path` is sent unchanged (percent-encoded)."""
        for attempt in range(self._retries + 1):
            if attempt:
                await asyncio.sleep(_PAUSE * 2 ** (attempt - 1))
            try:
                async with asyncio.timeout(self._timeout):
                    return await self._ask(method, self._base + path, content)
            except (httpx.TransportError, TimeoutError) as error:
                log.warning("A back-end is out of reach: %r", error, extra={"base": self._base})
        raise GatewayTimeout(self._unreachable)

    async def close(self) -> None:
        """Close the open connections."""
        if self._client is not None:
            await self._client.aclose()

    async def _ask(self, method: str, url: str, content: bytes) -> Answer:
        headers = {"Content-Type": "application/json", **UNCOMPRESSED}
        asked = self._open().stream(method, url, content=content, headers=headers)
        async with asked as response:
            try:
                return _answer(response, await read_answer(response, MAX_ANSWER))
            except ValueError as fault:
                raise BadGateway(f"The back-end's answer {fault}.") from None

    def _open(self) -> httpx.AsyncClient:
        """The client, made on the loop that uses it."""
        if self._client is None:
            self._client = httpx.AsyncClient(**self._options)
        return self._client


async def read_answer(response: httpx.Response, most: int) -> bytes:
    """Read the content of a response to a request with the headers UNCOMPRESSED.

    Args:
        response: the response, of which only the head has come.
        most: most bytes to read.

    Raises:
        ValueError: it is longer, or compressed; the text says which.
    """
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise ValueError("is compressed, which was not asked for")
    content = bytearray()
    async for piece in response.aiter_bytes():
        content += piece
        if len(content) > most:
            raise ValueError(f"is longer than {most} bytes")
    return bytes(content)


def _answer(response: httpx.Response, content: bytes) -> Answer:
    if not content:
        return Answer(response.status_code, None)
    try:
        return Answer(response.status_code, msgspec.json.decode(content))
    except (msgspec.DecodeError, RecursionError):
        if response.is_success:
            raise BadGateway("The back-end returned no valid answer.") from None
        text = content[: 4 * _LONGEST_REFUSAL].decode(errors="replace")
        return Answer(response.status_code, None, text[:_LONGEST_REFUSAL])
