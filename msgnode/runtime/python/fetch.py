"""One HTTP request to a catalogue or registry: bounded in time and size, and never led elsewhere.

Rules
- https; http on the loopback only. No redirect is followed.
- Each request has a thread of its own, so that a server that hangs delays nobody else's request.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import ipaddress
import json
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

MAX_DESCRIPTOR = 2 * 1024 * 1024
MAX_SOURCE = 1024 * 1024
_CHUNK = 65_536


class FetchError(Exception):
    """No usable answer. `code` is 504 for none in time or at all, 502 for one that is refused."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked; `body` is JSON unless the headers say otherwise."""

    method: str = "GET"
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered."""

    status: int
    body: bytes


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's own."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def fetch(
    url: str,
    seconds: float,
    most: int = MAX_DESCRIPTOR,
    constraints: Any = None,
    request: Request | None = None,
) -> Answer:
    """GET, or POST of constraints, or another request. Raises FetchError."""
    if request is None:
        request = Request()
        if constraints is not None:
            request = Request("POST", json.dumps(constraints).encode())
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Answer] = loop.create_future()
    opened: list[http.client.HTTPConnection] = []

    def settle(answer: Answer | None, error: Exception | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        elif answer is not None:
            done.set_result(answer)

    def work() -> None:
        answer, error = None, None
        try:
            answer = _fetch(url, time.monotonic() + seconds, most, request, opened)
        except FetchError as refused:
            error = refused
        except (OSError, http.client.HTTPException, ValueError) as failed:
            error = FetchError(504, f"{_host(url)} does not answer: {failed}")
        try:
            loop.call_soon_threadsafe(settle, answer, error)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    threading.Thread(target=work, name="catalogue", daemon=True).start()
    try:
        async with asyncio.timeout(seconds + 1):
            return await done
    except TimeoutError:
        raise FetchError(504, f"{_host(url)} does not answer in time.") from None
    finally:
        for connection in opened:  # a server that drips keeps no thread of ours
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)


def _host(url: str) -> str:
    return urlsplit(url).netloc


def _fetch(
    url: str,
    deadline: float,
    most: int,
    request: Request,
    opened: list[http.client.HTTPConnection],
) -> Answer:
    parts = urlsplit(url)
    if parts.scheme != "https" and not (
        parts.scheme == "http" and is_loopback(parts.hostname or "")
    ):
        raise FetchError(502, f"{url} is not https.")
    status, body, location = _request(parts, deadline, most, request, opened)
    if 300 <= status < 400:
        raise FetchError(502, f"{parts.netloc} leads to {location[:200]}, which is not followed.")
    return Answer(status, body)


def _request(
    parts: Any,
    deadline: float,
    most: int,
    request: Request,
    opened: list[http.client.HTTPConnection],
) -> tuple[int, bytes, str]:
    left = deadline - time.monotonic()
    if left <= 0:
        raise FetchError(504, f"{parts.netloc} does not answer in time.")
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=left, context=context
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=left)
    opened.append(connection)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    headers = {"Accept": "application/json", "Connection": "close", **request.headers}
    if request.body is not None:
        headers.setdefault("Content-Type", "application/json")
    try:
        connection.request(request.method, path, request.body, headers)
        answer = connection.getresponse()
        body = bytearray()
        while chunk := answer.read1(_CHUNK):
            body += chunk
            if len(body) > most:
                raise FetchError(502, f"{parts.netloc} answers with more than {most} bytes.")
            left = deadline - time.monotonic()
            if left <= 0:
                raise FetchError(504, f"{parts.netloc} does not answer in time.")
            if connection.sock is not None:
                connection.sock.settimeout(left)
        promised = answer.headers.get("Content-Length", "")
        if promised.isdecimal() and len(body) < int(promised):
            raise FetchError(504, f"{parts.netloc} breaks off in its answer.")
        return answer.status, bytes(body), answer.headers.get("Location", "")
    finally:
        connection.close()
