"""What is answered to a request for a WebSocket that does not ask for the upgrade."""

from __future__ import annotations

from typing import Any

UPGRADE_NEEDED = (
    "A WebSocket is opened with the headers `Upgrade: websocket` and `Connection: upgrade`. "
    "If they were sent, a proxy has left them out: in nginx set `proxy_http_version 1.1`, "
    "`proxy_set_header Upgrade $http_upgrade` and `proxy_set_header Connection upgrade`"
)


def asks_for_upgrade(connection: str) -> bool:
    """Whether a `Connection` header has the option `upgrade`.

    >>> asks_for_upgrade("keep-alive, Upgrade"), asks_for_upgrade("close")
    (True, False)
    """
    return "upgrade" in (option.strip().lower() for option in connection.split(","))


async def upgrade_required(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer 426 to a plain HTTP request for the address of a WebSocket. An ASGI application."""
    body = f"{UPGRADE_NEEDED}.\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"upgrade", b"websocket"),
        (b"connection", b"upgrade"),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": 426, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
