"""A log-in at an issuer elsewhere: the code flow of OpenID Connect, from the side of its client.

begin(issuer, …)   -> where the browser goes, and what is kept in its session meanwhile
finish(issuer, …)  -> who came back, as the issuer's signed token says; or NotLoggedIn

Rules
- state, nonce and PKCE (S256) always; each is good for one try, MINUTES long. Where the issuer
  names itself in its answer (RFC 9207), it must be the one that was asked.
- The identity token is verified like those of messages: key set, algorithm, issuer, audience,
  times. It must be for this client, and have the nonce.
- Groups are read from the token, else from the user info of the same subject.
- What is fetched obeys identity.http: the issuer's own host, or IDENTITY_HOSTS; small, quick.
Blocks: for threads of requests.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from time import time
from typing import Any
from urllib.parse import urlencode

import msgspec
from django.conf import settings
from joserfc import jwt
from joserfc.errors import JoseError

from msgnode.core import base64url
from msgnode.core.errors import NodeError

from . import claims, credentials
from .http import Fetcher, OutOfReach
from .issuers import Issuer
from .jwks import chosen, read_key_set
from .verifier import LEEWAY

log = logging.getLogger(__name__)

MINUTES = 10
TIMEOUT = 10.0
"""Seconds for each question to the issuer."""
MAX_GROUPS = 1_000
_NAMES = ("preferred_username", "upn", "email", "sub")

State = dict[str, Any]


class NotLoggedIn(Exception):
    """Nobody is logged in; the text says why, for who tries."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Who has logged in, by the word of the issuer.

    `is_strong`: the issuer says that more than one factor was shown (amr has "mfa", RFC 8176).
    """

    subject: str
    name: str
    full_name: str
    groups: tuple[str, ...]
    is_strong: bool


def begin(issuer: Issuer, back: str, *, again: bool = False) -> tuple[str, State]:
    """Where a browser goes to log in, and what its session keeps.

    Args:
        issuer: where.
        back: the URL that it comes back to.
        again: whether a person must log in there anew, who perhaps has already.

    Raises:
        NotLoggedIn: the issuer cannot be asked.
    """

    async def found(fetcher: Fetcher) -> tuple[dict[str, Any], str]:
        document = await fetcher.discovery(issuer.url)
        return document, fetcher.endpoint(document, "authorization_endpoint")

    document, url = _asked(issuer, found)
    verifier = secrets.token_urlsafe(48)
    hashed = hashlib.sha256(verifier.encode()).digest()
    state = {
        "issuer": issuer.url,
        "state": secrets.token_urlsafe(24),
        "nonce": secrets.token_urlsafe(24),
        "verifier": verifier,
        "at": time(),
    }
    known = document.get("scopes_supported")
    wants_groups = isinstance(known, list) and "groups" in known
    query = {
        "response_type": "code",
        "client_id": issuer.client_id,
        "redirect_uri": back,
        "scope": f"openid profile email{' groups' if wants_groups else ''}",
        "state": state["state"],
        "nonce": state["nonce"],
        "code_challenge": base64url.encode(hashed),
        "code_challenge_method": "S256",
        **({"prompt": "login"} if again else {}),
    }
    return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}", state


def finish(
    issuer: Issuer, groups_claim: str, back: str, state: State, answer: Mapping[str, str]
) -> Subject:
    """Who has come back from an issuer.

    Args:
        issuer: which one.
        groups_claim: the claim that names groups; parts of a path are separated by dots.
        back: the URL that the browser was sent back to.
        state: what `begin` has returned for this browser; it must not be used again.
        answer: the query of the address that the browser has come back to.

    Raises:
        NotLoggedIn: the answer is not good, or the issuer cannot be asked.
    """
    sent = answer.get("state", "")
    if not state or not secrets.compare_digest(sent.encode(), str(state["state"]).encode()):
        raise NotLoggedIn("This log-in was not begun in this browser, or is over. Begin again.")
    if state["issuer"] != issuer.url or not 0 <= time() - state["at"] <= MINUTES * 60:
        raise NotLoggedIn("This log-in has taken too long. Begin again.")
    if answer.get("iss", issuer.url) != issuer.url:
        raise NotLoggedIn("The answer is of another issuer.")
    if "error" in answer or not answer.get("code"):
        said = answer.get("error_description") or answer.get("error") or "no code"
        raise NotLoggedIn(f"The issuer has refused: {_plain(said)}")
    content, more = _asked(issuer, lambda fetcher: _redeemed(fetcher, issuer, back, state, answer))
    groups = _groups(content, groups_claim) or _groups(more, groups_claim)
    every = {**more, **content}
    names = (every.get(name) for name in _NAMES)
    methods = content.get("amr")
    return Subject(
        subject=content["sub"],
        name=str(next(each for each in names if claims.is_name(each))),
        full_name=every["name"] if claims.is_name(every.get("name")) else "",
        groups=groups,
        is_strong=isinstance(methods, list) and "mfa" in methods,
    )


async def _redeemed(
    fetcher: Fetcher, issuer: Issuer, back: str, state: State, answer: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The claims of the verified identity token, and what the user info adds."""
    document = await fetcher.discovery(issuer.url)
    is_named = document.get("authorization_response_iss_parameter_supported") is True
    if is_named and "iss" not in answer:
        raise NotLoggedIn("The answer does not name its issuer.")
    form = {
        "grant_type": "authorization_code",
        "code": answer["code"],
        "redirect_uri": back,
        "code_verifier": state["verifier"],
    }
    ways = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    tokens = await fetcher.redeem(
        fetcher.endpoint(document, "token_endpoint"),
        form,
        (issuer.client_id, issuer.client_secret),
        in_header=isinstance(ways, list) and "client_secret_basic" in ways,
    )
    keys = msgspec.json.decode(issuer.jwks) if issuer.jwks else None
    if keys is None:
        named = issuer.jwks_url or fetcher.endpoint(document, "jwks_uri")
        keys = await fetcher.jwks(named, issuer.url)
    content = _verified(issuer, str(tokens.get("id_token")), keys, state["nonce"])
    more: dict[str, Any] = {}
    if isinstance(document.get("userinfo_endpoint"), str) and _is_token(tokens):
        url = fetcher.endpoint(document, "userinfo_endpoint")
        more = await fetcher.user_info(url, tokens["access_token"])
        if more.get("sub") != content["sub"]:
            raise NotLoggedIn("The issuer's user info is about somebody else.")
    return content, more


def _verified(issuer: Issuer, token: str, keys: Any, nonce: str) -> dict[str, Any]:
    """The claims of an identity token for this node. Raises NotLoggedIn."""
    try:
        head = credentials.header(token)
        algorithm = head.get("alg")
        if algorithm not in issuer.algorithms or "crit" in head:
            raise NotLoggedIn("The identity token is not signed in a way its issuer signs.")
        key = chosen(read_key_set(keys).keys, head.get("kid"), algorithm)
        if key is None:
            raise NotLoggedIn("The identity token is signed with a key its issuer does not have.")
        content = jwt.decode(token, key, algorithms=[algorithm]).claims
        claims.read(content, issuer, {issuer.client_id}, time(), LEEWAY)
    except NodeError as fault:
        raise NotLoggedIn(fault.description) from None
    except (JoseError, ValueError, TypeError) as fault:
        log.info("An identity token was refused: %s", type(fault).__name__)
        raise NotLoggedIn("The identity token's signature is not its issuer's.") from None
    if not secrets.compare_digest(str(content.get("nonce", "")).encode(), nonce.encode()):
        raise NotLoggedIn("The identity token is not the answer to this log-in.")
    return dict(content)


def _asked(issuer: Issuer, ask: Any) -> Any:
    """What a coroutine that asks an issuer returns. Raises NotLoggedIn."""
    identity = settings.IDENTITY

    async def asked() -> Any:
        fetcher = Fetcher(TIMEOUT, identity["HOSTS"], identity["LOOPBACK_HTTP"])
        try:
            return await ask(fetcher)
        finally:
            await fetcher.close()

    try:
        return asyncio.run(asked())
    except OutOfReach as fault:
        log.warning("A log-in at an issuer failed: %s", fault, extra={"issuer": issuer.url})
        raise NotLoggedIn(
            "The issuer cannot be reached, or does not answer as it should."
        ) from fault


def _groups(content: Mapping[str, Any], claim: str) -> tuple[str, ...]:
    """The groups of a claim: a list of texts, or one; at the end of a path, unless so named."""
    value: Any = content.get(claim)
    if value is None:
        value = content
        for part in claim.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    listed = value[:MAX_GROUPS] if isinstance(value, list) else [value]
    return tuple(each for each in listed if claims.is_name(each))


def _is_token(tokens: Mapping[str, Any]) -> bool:
    token = tokens.get("access_token")
    return (
        isinstance(token, str)
        and 0 < len(token) < 16_384
        and token.isascii()
        and token.isprintable()
    )


def _plain(text: str) -> str:
    return "".join(each for each in text if each.isprintable())[:200]
