"""Which URLs the stub of a peer may open a WebSocket to. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from msgnode.devices.safe_http import Network


def url_fault(url: str, hosts: frozenset[str], networks: Sequence[Network]) -> str:
    """Why a stub may open no WebSocket there, "" if it may.

    >>> url_fault("wss://evil.example/ws", frozenset({"b.example"}), ())
    'evil.example is no host of the peer'
    """
    try:
        parts = urlsplit(url)
        host, _ = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return "it is no URL"
    if parts.scheme not in (("wss", "ws") if networks else ("wss",)):
        return "it must begin with wss://"
    if parts.username is not None or parts.password is not None:
        return "it must not name a user"
    if not any(host == each or host.endswith(f".{each}") for each in hosts):
        return f"{host or 'nothing'} is no host of the peer"
    return ""
