"""A back-end of the operator by its base URL: retries, JSON, and errors of the node.

A request is retried only after a transport error (the connection, not an answer), with pauses that
double; every request here is idempotent. A final failure raises GatewayTimeout with a text for the
sender of the message; an unexpected kind of answer raises BadGateway. An attempt takes at most
`timeout` seconds.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from msgnode.core.back_off import BackOff
from msgnode.core.errors import BadGateway, GatewayTimeout

from . import http
from .http import ANYWHERE, BadAnswer, HttpClient, NoAnswer, NotAllowed

log = logging.getLogger(__name__)

MAX_ANSWER = 8 * 1024 * 1024
_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
_LONGEST_REFUSAL = 1000  # characters


@dataclass(frozen=True, slots=True)
class Answer:
    """A status and the body's JSON, None where there was none; a refusal's text as it came."""

    status: int
    body: Any
    text: str = ""


class BackEnd:
    """A back-end by its base URL.

    Args:
        base: the URL that paths are appended to; a user and a password in it are sent (Basic).
        unreachable: the error text for senders.
        timeout: seconds of one attempt.
        retries: attempts after the first one.
        connections: at a time, at most.
    """

    def __init__(
        self, base: str, unreachable: str, timeout: float, retries: int, connections: int
    ) -> None:
        parts = urlsplit(base)
        _, _, host = parts.netloc.rpartition("@")
        self._base = parts._replace(netloc=host).geturl().rstrip("/")
        self._headers: dict[str, str] = {}
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        self._unreachable = unreachable
        self._retries = retries
        self._client = HttpClient(ANYWHERE, timeout, MAX_ANSWER, connections=connections)

    async def send(self, method: str, path: str, content: bytes = b"") -> Answer:
        """Send a request; `path` is sent unchanged (percent-encoded)."""
        url = self._base + path
        back_off = BackOff(_PAUSE, _LONGEST_PAUSE)
        for attempt in range(self._retries + 1):
            if attempt:
                await asyncio.sleep(back_off.failed())
            try:
                return _answer(
                    await self._client.request(method, url, content or None, self._headers)
                )
            except (BadAnswer, NotAllowed) as fault:
                raise BadGateway(f"The back-end cannot be used: {fault}") from None
            except NoAnswer as error:
                log.warning("A back-end is out of reach: %s", error, extra={"base": self._base})
        raise GatewayTimeout(self._unreachable)

    async def close(self) -> None:
        """Close the open connections."""
        await self._client.close()


def _answer(answer: http.Answer) -> Answer:
    if not answer.body:
        return Answer(answer.status, None)
    try:
        return Answer(answer.status, msgspec.json.decode(answer.body))
    except (msgspec.DecodeError, RecursionError):
        if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            raise BadGateway("The back-end returned no valid answer.") from None
        text = answer.body[: 4 * _LONGEST_REFUSAL].decode(errors="replace")
        return Answer(answer.status, None, text[:_LONGEST_REFUSAL])
