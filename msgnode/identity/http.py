"""The HTTP client for issuers: small answers, within seconds, from hosts the operator has named.

Rules
- URLs come from the configuration of an issuer, or from its discovery document; never from a token.
  They are HTTPS; plain HTTP to this machine is a setting, for development.
- URLs in a discovery document must be on the issuer's own host, or on one of the setting
  IDENTITY_HOSTS.
- An answer has at most MAX_ANSWER bytes, uncompressed, and takes at most `timeout` seconds in all;
  redirects are not followed.
- Each host has connections of its own, so that one that freezes takes none from the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import httpx
import msgspec

from msgnode.connectors.http import UNCOMPRESSED, read_answer

log = logging.getLogger(__name__)

MAX_ANSWER = 256 * 1024
CONNECTIONS = 16
"""Most connections to one host at a time."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class OutOfReach(Exception):
    """An issuer did not answer, or not as it should. For the log, not for senders."""


class Fetcher:
    """One instance per worker; the client is made on the loop that uses it."""

    def __init__(self, timeout: float, hosts: Collection[str], allows_loopback_http: bool) -> None:
        self._timeout = timeout
        self._hosts = frozenset(hosts)
        self._allows_loopback_http = allows_loopback_http
        self._client: httpx.AsyncClient | None = None
        self._of_host: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()  # in use

    async def jwks(self, jwks_url: str, issuer: str) -> dict[str, Any]:
        """The key set at `jwks_url`, or at the URL in the issuer's discovery document.

        Raises OutOfReach.
        """
        try:
            async with asyncio.timeout(self._timeout):
                if not jwks_url:
                    jwks_url = await self._discovered(issuer)
                return await self._json("GET", jwks_url)
        except (TimeoutError, httpx.HTTPError) as error:
            raise OutOfReach(f"{jwks_url or issuer}: {error!r}") from None

    async def introspection(
        self, url: str, token: str, client_id: str, client_secret: str
    ) -> dict[str, Any]:
        """The introspection of a token (RFC 7662). Raises OutOfReach."""
        try:
            async with asyncio.timeout(self._timeout):
                return await self._json(
                    "POST",
                    url,
                    data={"token": token, "token_type_hint": "access_token"},
                    auth=httpx.BasicAuth(client_id, client_secret) if client_id else None,
                )
        except (TimeoutError, httpx.HTTPError) as error:
            raise OutOfReach(f"{url}: {error!r}") from None

    async def close(self) -> None:
        """Close the connections to issuers that are kept open."""
        if self._client is not None:
            await self._client.aclose()

    async def _discovered(self, issuer: str) -> str:
        document = await self._json("GET", issuer.rstrip("/") + "/.well-known/openid-configuration")
        if document.get("issuer") != issuer:
            raise OutOfReach(f"{issuer}: its discovery document is of another issuer")
        jwks_url = document.get("jwks_uri")
        if not isinstance(jwks_url, str):
            raise OutOfReach(f"{issuer}: its discovery document names no keys")
        if urlsplit(jwks_url).hostname not in {urlsplit(issuer).hostname, *self._hosts}:
            raise OutOfReach(f"{jwks_url} is not on the issuer's host, nor in IDENTITY_HOSTS")
        return jwks_url

    async def _json(self, method: str, url: str, **options: Any) -> dict[str, Any]:
        if why := url_fault(url, self._allows_loopback_http):
            raise OutOfReach(f"{url} {why}")
        if self._client is None:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=CONNECTIONS)
            self._client = httpx.AsyncClient(
                timeout=httpx.Timeout(self._timeout), limits=limits, trust_env=False
            )
        own = self._of_host.setdefault(urlsplit(url).netloc, asyncio.Semaphore(CONNECTIONS))
        request = self._client.stream(method, url, headers=UNCOMPRESSED, **options)
        async with own, request as response:
            if response.status_code != httpx.codes.OK:
                raise OutOfReach(f"{url}: answered {response.status_code}")
            try:
                content = await read_answer(response, MAX_ANSWER)
            except ValueError as fault:
                raise OutOfReach(f"{url}: its answer {fault}") from None
        try:
            value = msgspec.json.decode(content)
        except (msgspec.DecodeError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise OutOfReach(f"{url}: its answer is not a JSON object")
        return value


def url_fault(url: str, allows_loopback_http: bool) -> str:
    """Why a URL is not allowed, "" if it is."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is not a URL"
    if not host or parts.username or parts.fragment:
        return "is not a plain URL of a host"
    if parts.scheme == "https":
        return ""
    if parts.scheme == "http" and allows_loopback_http and host in _LOOPBACK:
        return ""
    return "is not HTTPS"
