"""Log in at an OpenID provider: code flow with PKCE over a loopback address (RFC 8252).

    await runtime.log_in(openid(issuer="https://node.example/o", client_id="my-app"))

Rules
- `open(url)` shows the address to the person, and the answer comes to a port of 127.0.0.1.
- What the provider says of itself must name the same issuer; its addresses are https, or http on
  this machine.
- An answer counts if state, issuer and nonce are those that were asked for.
- Tokens are kept in `storage`; renewal and log-out use the provider's addresses.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import inspect
import json
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit

from .fetch import FetchError, Request, fetch, is_loopback
from .syncher.stored_objects import Storage

FETCH_SECONDS = 10.0
PERSON_SECONDS = 300.0  # that somebody may take to log in
_PAGE = "You are logged in. This page may be closed."


class OpenIdError(Exception):
    """The provider refuses (code 401), does not answer (504), or is not to be believed."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Token(NamedTuple):
    """What is shown to a node, and until when it is good, in seconds since 1970."""

    token: str
    expires: float


def openid(
    *,
    issuer: str,
    client_id: str,
    scope: str = "openid email profile",
    token: str = "access",  # noqa: S107 (a word)
    storage: Storage | None = None,
    open: Callable[[str], Any] = lambda url: print(f"Log in at {url}"),  # noqa: A002, T201
) -> OpenId:
    """Who logs in at an OpenID provider; for Runtime.log_in().

    Args:
        issuer: URL of the provider; a Messaging Node's own is `https://<node>/o`.
        client_id: of the application; `http://127.0.0.1/` is one of its redirect addresses.
        scope: has "openid" in it.
        token: which is shown to the node: "access", as its own provider expects, or "id".
        storage: texts by key, where tokens are kept.
        open: shows the address to the person, such as `webbrowser.open`.

    Raises:
        TypeError: naming the argument.
    """
    if not _is_safe(issuer):
        raise TypeError("issuer is an https URL, or http on this machine.")
    if not (_is_text(client_id) and client_id):
        raise TypeError("client_id is a text that is not empty.")
    if not _is_text(scope) or "openid" not in scope.split(" "):
        raise TypeError('scope is a text with the word "openid" in it.')
    if token not in ("access", "id"):
        raise TypeError('token is "access" or "id".')
    if not callable(open):
        raise TypeError("open is a function of a URL.")
    return OpenId(issuer, client_id, scope, token, storage, open)


class OpenId:
    """A log-in that can be renewed; made by openid()."""

    def __init__(
        self,
        issuer: str,
        client_id: str,
        scope: str,
        token: str,
        storage: Storage | None,
        show: Callable[[str], Any],
    ) -> None:
        self._issuer = issuer
        self._client_id = client_id
        self._scope = scope
        self._which = token
        self._storage = storage
        self._open = show
        self._key = f"msgnode.openid.{issuer}.{client_id}"
        self._tokens: dict[str, Any] | None = None
        self._provider: dict[str, Any] | None = None

    async def token(self) -> Token:
        """A token: kept, renewed, or of a person who logs in now. Raises OpenIdError."""
        if self._tokens is None:
            self._tokens = self._read()
        if self._tokens is not None and self._tokens["expires"] > time.time() + 1:
            return self._shown()
        if self._tokens is not None and self._tokens.get("refresh"):
            try:
                return await self.renew()
            except OpenIdError as error:
                if error.code != 401:
                    raise  # else the person logs in again
        await self._ask()
        return self._shown()

    async def renew(self) -> Token:
        """A token that is good for longer. Raises OpenIdError: 401 if the person has to log in."""
        refresh = (self._tokens or {}).get("refresh")
        if not refresh:
            raise OpenIdError(401, f"{self._issuer} has given no refresh token.")
        await self._redeem({"grant_type": "refresh_token", "refresh_token": refresh})
        return self._shown()

    async def log_out(self) -> None:
        """Have the provider forget the tokens."""
        tokens, self._tokens = self._tokens or self._read(), None
        if self._storage is not None:
            self._storage.pop(self._key, None)
        address = (await self._discovered()).get("revocation_endpoint")
        if tokens and address:
            await self._post(address, {"token": tokens.get("refresh") or tokens["access"]})

    def _shown(self) -> Token:
        tokens = self._tokens or {}
        token = tokens.get(self._which)
        if not token:
            raise OpenIdError(401, f"{self._issuer} has given no {self._which} token.")
        return Token(token, tokens["expires"])

    # --- asking the person ------------------------------------------------------------------------

    async def _ask(self) -> None:
        """Wait at a port of this machine for the person's browser."""
        state, nonce = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
        verifier = secrets.token_urlsafe(48)
        answered: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                async with asyncio.timeout(10):
                    head = await reader.readuntil(b"\r\n")
                query = _query(head.decode("latin-1"))
                is_it = query.get("state") == state
                status, words = ("200 OK", _PAGE) if is_it else ("404 Not Found", "Not found.")
                lines = (f"HTTP/1.1 {status}", "Content-Type: text/plain", "Connection: close")
                writer.write(("\r\n".join((*lines, "", words))).encode())
                await writer.drain()
                if is_it and not answered.done():
                    answered.set_result(query)
            except (TimeoutError, asyncio.LimitOverrunError, asyncio.IncompleteReadError, OSError):
                return  # it is no browser
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=16_384)
        back = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        try:
            shown = self._open(await self._address(state, nonce, verifier, back))
            if inspect.isawaitable(shown):
                await shown
            async with asyncio.timeout(PERSON_SECONDS):
                query = await answered
        except TimeoutError:
            raise OpenIdError(504, "Nobody has logged in in time.") from None
        finally:
            server.close()
        if query.get("iss", self._issuer) != self._issuer:
            raise OpenIdError(401, f"The answer is of {query['iss']}, not of {self._issuer}.")
        if "code" not in query:
            said = query.get("error_description") or query.get("error") or "no reason"
            raise OpenIdError(401, f"{self._issuer} lets nobody in: {said}")
        form = {"grant_type": "authorization_code", "code": query["code"], "redirect_uri": back}
        await self._redeem({**form, "code_verifier": verifier}, nonce)

    async def _address(self, state: str, nonce: str, verifier: str, back: str) -> str:
        address = str((await self._discovered())["authorization_endpoint"])
        digest = hashlib.sha256(verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": back,
            "scope": self._scope,
            "state": state,
            "nonce": nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}"

    # --- the provider -----------------------------------------------------------------------------

    async def _redeem(self, form: Mapping[str, str], nonce: str = "") -> None:
        said = await self._post(str((await self._discovered())["token_endpoint"]), form)
        access, seconds, before = said.get("access_token"), said.get("expires_in"), self._tokens
        if not isinstance(access, str):
            raise OpenIdError(401, f"{self._issuer} has given no access token.")
        if nonce and said.get("id_token"):
            claims = _claims(str(said["id_token"]))
            named = claims.get("aud")
            is_ours = self._client_id in (named if isinstance(named, list) else [named])
            if claims.get("nonce") != nonce or not is_ours:
                raise OpenIdError(401, "The answer belongs to another log-in.")
        lifetime = float(seconds) if isinstance(seconds, (int, float)) and seconds > 0 else 3600.0
        self._tokens = {
            "access": access,
            "id": said.get("id_token") or (before or {}).get("id"),
            "refresh": said.get("refresh_token") or (before or {}).get("refresh"),
            "expires": time.time() + lifetime,
        }
        if self._storage is not None:
            self._storage[self._key] = json.dumps(self._tokens)

    async def _discovered(self) -> dict[str, Any]:
        if self._provider is None:
            url = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
            said = await self._asked(url, Request())
            if said.get("issuer") != self._issuer:
                text = f"The provider is {said.get('issuer')}, not {self._issuer}."
                raise OpenIdError(401, text)
            for name in ("authorization_endpoint", "token_endpoint", "revocation_endpoint"):
                is_needed = name in said or name != "revocation_endpoint"
                if is_needed and not _is_safe(said.get(name)):
                    raise OpenIdError(401, f"{self._issuer} names no safe {name}.")
            self._provider = said
        return self._provider

    async def _post(self, address: str, form: Mapping[str, str]) -> dict[str, Any]:
        body = urlencode({**form, "client_id": self._client_id}).encode()
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return await self._asked(address, Request("POST", body, kind))

    async def _asked(self, address: str, request: Request) -> dict[str, Any]:
        try:
            answer = await fetch(address, FETCH_SECONDS, 262_144, request=request)
        except FetchError as error:
            raise OpenIdError(504, str(error)) from None
        try:
            said = json.loads(answer.body or b"{}")
        except ValueError:
            said = None
        if answer.status == 200 and isinstance(said, dict):
            return said
        words = said if isinstance(said, dict) else {}
        why = words.get("error_description") or words.get("error") or f"it answers {answer.status}"
        is_away = answer.status >= 500 or answer.status in (200, 429)
        raise OpenIdError(504 if is_away else 401, f"{address}: {why}")

    def _read(self) -> dict[str, Any] | None:
        text = self._storage.get(self._key) if self._storage is not None else None
        with contextlib.suppress(ValueError):
            kept = json.loads(text or "null")
            if isinstance(kept, dict) and isinstance(kept.get("expires"), (int, float)):
                return kept
        return None  # the person logs in again


def _query(line: str) -> dict[str, str]:
    parts = line.split(" ")
    target = parts[1] if len(parts) > 1 else ""
    return {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}


def _claims(token: str) -> dict[str, Any]:
    """The claims of a token that came from the provider itself."""
    payload = (token.split(".") + ["", ""])[1]
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except ValueError:
        return {}
    return claims if isinstance(claims, dict) else {}


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_safe(address: Any) -> bool:
    parts = urlsplit(address if isinstance(address, str) else "")
    host = parts.hostname or ""
    return bool(host) and (
        parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    )
