"""WebSockets that the node opens to others: only to addresses that were checked (net/http)."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect

from msgnode.resources import user_agent

from .http import Network, NotAllowed, Resolve, allowed_addresses
from .tls import client_context

CONNECT_SECONDS = 10.0
CLOSE_SECONDS = 1.0


async def open_socket(
    url: str,
    networks: Sequence[Network],
    resolve: Resolve | None = None,
    tls: ssl.SSLContext | None = None,
    **options: Any,
) -> ClientConnection:
    """Open a WebSocket without compression or pings.

    Args:
        url: `wss://…`, or `ws://…` in one of the networks.
        networks: that may be connected to although they are not public.
        resolve: finds its addresses; the system's by default.
        tls: checks its certificate; by default with the authorities that are trusted.
        options: of `connect`.

    Raises:
        ConnectionRefusedError: nothing listens at any of its addresses.
        OSError: it cannot be reached.
        NotAllowed: one of its addresses is not for the node, or it redirects.
        WebSocketException: the upgrade was refused.
    """
    parts = urlsplit(url)
    is_tls = parts.scheme == "wss"
    host, port = parts.hostname or "", parts.port or (443 if is_tls else 80)
    context = (tls or await client_context()) if is_tls else None
    failure: OSError = OSError(f"{host} has no address")
    is_refused = True
    for address in await allowed_addresses(host, port, networks, resolve, is_tls):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        plain = socket.socket(family, socket.SOCK_STREAM)
        plain.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(plain, (address, port))
        except OSError as error:
            plain.close()
            is_refused = is_refused and isinstance(error, ConnectionRefusedError)
            failure = error
            continue
        except BaseException:
            plain.close()
            raise
        try:
            return await connect(
                url, sock=plain, ssl=context, server_hostname=host if is_tls else None,
                compression=None, open_timeout=CONNECT_SECONDS, close_timeout=CLOSE_SECONDS,
                ping_interval=None, user_agent_header=user_agent(), proxy=None, **options,
            )  # fmt: skip
        except ValueError as error:  # it redirects, or a subprotocol has an odd name
            plain.close()
            raise NotAllowed(str(error)) from None
    if isinstance(failure, ConnectionRefusedError) and not is_refused:
        raise OSError(str(failure))
    raise failure
