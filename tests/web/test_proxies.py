"""Who the client is behind proxies: of the names, as many count as there are proxies."""

from __future__ import annotations

from typing import Any

import pytest

from msgnode.web.proxies import BehindProxies

LOOPBACK = ["127.0.0.1", 5000]


async def seen(proxies: int, kind: str = "http", **headers: str) -> dict[str, Any]:
    """The scope an application gets."""
    found: dict[str, Any] = {}

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        found.update(scope)

    sent = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scheme = "ws" if kind == "websocket" else "http"
    scope = {"type": kind, "client": LOOPBACK, "scheme": scheme, "headers": sent}
    await BehindProxies(application, proxies)(scope, None, None)
    return found


@pytest.mark.parametrize(
    ("proxies", "said", "client"),
    [
        (0, "203.0.113.9", "127.0.0.1"),
        (1, "203.0.113.9", "203.0.113.9"),
        (1, "192.0.2.66, 203.0.113.9", "203.0.113.9"),  # what the client wrote counts for nothing
        (2, "192.0.2.66, 203.0.113.9, 10.0.0.1", "203.0.113.9"),
        (2, "203.0.113.9", "127.0.0.1"),  # it did not come through both
        (1, "2001:db8::1", "2001:db8::1"),
        (1, "not an address", "127.0.0.1"),
        (1, "", "127.0.0.1"),
    ],
)
async def test_the_client_is_whom_our_outermost_proxy_saw(
    proxies: int, said: str, client: str
) -> None:
    scope = await seen(proxies, X_Forwarded_For=said)
    assert scope["client"][0] == client
    assert scope["headers"] == []


@pytest.mark.parametrize(
    ("proxies", "kind", "said", "scheme"),
    [
        (0, "http", "https", "http"),
        (1, "http", "https", "https"),
        (1, "websocket", "https", "wss"),
        (1, "websocket", "http", "ws"),
        (1, "http", "https, http", "http"),
        (1, "http", "gopher", "http"),
    ],
)
async def test_the_scheme_is_the_proxys(proxies: int, kind: str, said: str, scheme: str) -> None:
    assert (await seen(proxies, kind, X_Forwarded_Proto=said))["scheme"] == scheme


async def test_the_host_is_never_taken_from_a_forwarded_header() -> None:
    scope = await seen(1, Host="node", X_Forwarded_Host="evil.example.org")
    assert scope["headers"] == [(b"Host", b"node")]


async def test_headers_of_several_lines_are_one_list() -> None:
    scope = await seen(1, X_Forwarded_For="192.0.2.66", x_forwarded_for="203.0.113.9")
    assert scope["client"][0] == "203.0.113.9"
