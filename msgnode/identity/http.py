"""The HTTP client for issuers: small answers, within seconds, from hosts the operator has named.

Rules
- URLs come from the configuration of an issuer, or from its discovery document; never from a token.
  They are HTTPS; plain HTTP to this machine is a setting, for development.
- URLs in a discovery document must be on the issuer's own host, or on one of the setting
  IDENTITY_HOSTS.
- An answer has at most MAX_ANSWER bytes and takes at most `timeout` seconds (net/http.py).
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from msgnode.net.http import ANYWHERE, HttpClient, NoAnswer, NotAllowed

MAX_ANSWER = 256 * 1024
CONNECTIONS = 16
"""Most connections to one host at a time."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class OutOfReach(Exception):
    """An issuer did not answer, or not as it should. For the log, not for senders."""


class Fetcher:
    """One instance per worker."""

    def __init__(self, timeout: float, hosts: Collection[str], allows_loopback_http: bool) -> None:
        self._hosts = frozenset(hosts)
        self._allows_loopback_http = allows_loopback_http
        self._client = HttpClient(ANYWHERE, timeout, MAX_ANSWER, connections=CONNECTIONS)

    async def jwks(self, jwks_url: str, issuer: str) -> dict[str, Any]:
        """The key set at `jwks_url`, or at the URL in the issuer's discovery document.

        Raises OutOfReach.
        """
        if not jwks_url:
            jwks_url = self.endpoint(await self.discovery(issuer), "jwks_uri")
        return await self._json("GET", jwks_url)

    async def introspection(
        self, url: str, token: str, client_id: str, client_secret: str
    ) -> dict[str, Any]:
        """The introspection of a token (RFC 7662). Raises OutOfReach."""
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if client_id:
            client = base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()
            headers["Authorization"] = f"Basic {client}"
        form = urlencode({"token": token, "token_type_hint": "access_token"}).encode()
        return await self._json("POST", url, form, headers)

    async def close(self) -> None:
        """Close the connections to issuers that are kept open."""
        await self._client.close()

    async def discovery(self, issuer: str) -> dict[str, Any]:
        """The discovery document of an issuer. Raises OutOfReach."""
        document = await self._json("GET", issuer.rstrip("/") + "/.well-known/openid-configuration")
        if document.get("issuer") != issuer:
            raise OutOfReach(f"{issuer}: its discovery document is of another issuer")
        return document

    def endpoint(self, document: dict[str, Any], name: str) -> str:
        """A URL of a discovery document. Raises OutOfReach if it is missing or leads elsewhere."""
        issuer, url = document["issuer"], document.get(name)
        if not isinstance(url, str):
            raise OutOfReach(f"{issuer}: its discovery document names no {name}")
        if urlsplit(url).hostname not in {urlsplit(issuer).hostname, *self._hosts}:
            raise OutOfReach(f"{url} is not on the issuer's host, nor in IDENTITY_HOSTS")
        if why := url_fault(url, self._allows_loopback_http):
            raise OutOfReach(f"{url} {why}")
        return url

    async def redeem(
        self, url: str, form: Mapping[str, str], client: tuple[str, str], in_header: bool
    ) -> dict[str, Any]:
        """The tokens for a code (RFC 6749, section 4.1.3). Raises OutOfReach.

        Args:
            url: the token endpoint.
            form: the code and what belongs to it.
            client: id and secret; a client without a secret only names itself.
            in_header: whether the secret goes into the header Authorization.
        """
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        sent = dict(form)
        if client[1] and in_header:
            pair = ":".join(quote(each, safe="") for each in client)
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            sent["client_id"] = client[0]
            if client[1]:
                sent["client_secret"] = client[1]
        return await self._json("POST", url, urlencode(sent).encode(), headers)

    async def user_info(self, url: str, access_token: str) -> dict[str, Any]:
        """What the issuer says of whose access token it is. Raises OutOfReach."""
        return await self._json("GET", url, headers={"Authorization": f"Bearer {access_token}"})

    async def _json(
        self,
        method: str,
        url: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        if why := url_fault(url, self._allows_loopback_http):
            raise OutOfReach(f"{url} {why}")
        try:
            answer = await self._client.request(method, url, body, headers)
        except (NoAnswer, NotAllowed) as error:
            raise OutOfReach(f"{url}: {error}") from None
        try:
            value = msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, RecursionError):
            value = None
        if answer.status != HTTPStatus.OK:
            said = value.get("error") if isinstance(value, dict) else None
            why = f" {said[:60]}" if isinstance(said, str) and said.isprintable() else ""
            raise OutOfReach(f"{url}: answered {answer.status}{why}")
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
