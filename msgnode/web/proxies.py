"""Finds the client's address behind proxies: the setting PROXIES says how many are trusted.

It wraps the ASGI application, so that sockets, console, API and login throttling see the same
address. The n-th entry from the right in X-Forwarded-For was written by the outermost of our n
proxies; entries further left may be forged by the client. Without proxies the X-Forwarded-* headers
are dropped, because only the client can have written them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any

from django.http import HttpRequest

from msgnode.core.rates import source_of

Application = Callable[..., Awaitable[None]]

_FORWARDED = (b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"x-forwarded-port")


class BehindProxies:
    """An ASGI application that sees the client's address and scheme in its scope."""

    def __init__(self, application: Application, proxies: int) -> None:
        self._application = application
        self._proxies = proxies

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Pass a request on, with the client that the proxies name."""
        if scope["type"] in ("http", "websocket"):
            self._settle(scope)
        await self._application(scope, receive, send)

    def _settle(self, scope: dict[str, Any]) -> None:
        headers: list[tuple[bytes, bytes]] = list(scope["headers"])
        if self._proxies > 0:
            named = _values(headers, b"x-forwarded-for")
            if len(named) >= self._proxies and is_ip_address(named[-self._proxies]):
                scope["client"] = (named[-self._proxies], 0)
            named = _values(headers, b"x-forwarded-proto")
            if named and named[-1] in ("http", "https"):
                is_socket = scope["type"] == "websocket"
                scope["scheme"] = named[-1].replace("http", "ws") if is_socket else named[-1]
        scope["headers"] = [each for each in headers if each[0].lower() not in _FORWARDED]


def _values(headers: list[tuple[bytes, bytes]], name: bytes) -> list[str]:
    """The values of a header that may come several times, each with commas."""
    said = ",".join(value.decode("latin1") for key, value in headers if key.lower() == name)
    return [part.strip() for part in said.split(",") if part.strip()]


def is_ip_address(text: str) -> bool:
    """Whether a text is an IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def address_of(request: HttpRequest) -> str:
    """The client's address, for whoever asks with a request (django-axes)."""
    return str(request.META.get("REMOTE_ADDR") or "")


def source_of_request(request: HttpRequest) -> str:
    """What a client's requests are counted under: its address, or the /64 of an IPv6 one."""
    return source_of(address_of(request))
