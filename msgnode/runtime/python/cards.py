"""Cards: what a domain asserts of one of its users, read before any code of the domain runs.

    webfinger of the user -> card (a JWT) -> the issuer's keys -> checks

All of it is fetched from the domain itself, or where the settings say that its catalogue is. A card
says which protostub leads to the user; while it is good, the runtime loads no other code for the
domain than the card names by its digests.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from msgnode.core import addresses

from .arguments import wrong
from .fetch import FetchError, fetch, is_loopback
from .settings import Settings

AUDIENCE = "protofly"
LONGEST = 24 * 3600.0  # seconds that a card may be good for
LEEWAY = 60.0
MAX_CARD = 16 * 1024
MAX_DOCUMENT = 256 * 1024
MAX_DIGESTS = 100


class CardError(Exception):
    """There is no card that proves anything.

    Attributes:
        code: 400 the name is none, 404 there is no card, 502 it is not good, 504 no answer in time.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Card:
    """What the user's domain asserts of him.

    Attributes:
        user_url: what he is registered by: `runtime.bus` finds his hyperties by it at `domain`.
        endpoint: URL where he is invited, "" if no runtime of his asks for that.
        hyperty: what of his may be called directly, "" if he names none.
        protostub: URL of the catalogue entry of the stub that leads to him.
        digests: of that stub's code, one for each kind of runtime; empty if the domain names none.
        expires: seconds since the epoch.
        claims: all that the card says.
    """

    user_url: str
    domain: str
    endpoint: str
    hyperty: str
    protostub: str
    digests: tuple[str, ...]
    expires: float
    claims: Mapping[str, Any]


class Cards:
    """Fetches and checks cards for one runtime."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def card_of(self, user: str) -> Card:
        """The card of bob@example.org or user://example.org/bob. Raises CardError."""
        if not isinstance(user, str):
            raise wrong("user", "bob@example.org or a user URL", user)
        domain, names = _named(user)
        resource = user if "://" in user else f"acct:{user}"
        base = self._settings.catalogue_of(domain)
        none = CardError(404, f"{domain} has no card of {user}.")
        try:
            found = await self._json(
                f"{base}/.well-known/webfinger?resource={quote(resource, safe='')}"
            )
        except CardError as error:
            raise none if error.code == 404 else error from None
        links = found.get("links")
        hrefs = [
            each.get("href")
            for each in (links if isinstance(links, list) else [])
            if isinstance(each, dict) and each.get("rel") == "contact-card"
        ]
        if not hrefs:
            raise none
        token = await self._get(self._own(hrefs[0], domain, "card"), MAX_CARD)
        return await self.checked(token.decode(errors="replace").strip(), domain, names)

    async def checked(self, token: str, domain: str, names: tuple[str, ...] = ()) -> Card:
        """The card that a token is, of any user of the domain or one of these. Raises CardError."""
        head, claims = _read(token)
        issuer = self._own(claims.get("iss"), domain, "issuer")
        said = await self._json(f"{issuer}/.well-known/openid-configuration")
        if said.get("issuer") != issuer:
            raise CardError(502, f"{issuer} says that it is another issuer.")
        keys = await self._json(self._own(said.get("jwks_uri"), domain, "key set"))
        if not _is_signed(token, head, keys.get("keys")):
            raise CardError(502, f"The card is not signed by {issuer}.")
        now = time.time()
        issued, expires = _number(claims, "iat"), _number(claims, "exp")
        if not issued - LEEWAY <= now < expires or expires - issued > LONGEST:
            raise CardError(502, "The card has expired, or is good for too long, or not yet.")
        audience = claims.get("aud")
        if AUDIENCE not in (audience if isinstance(audience, list) else [audience]):
            raise CardError(502, "The token is no card: it is for another audience.")
        user_url = claims.get("user_url")
        address = addresses.parse(user_url if isinstance(user_url, str) else "")
        is_meant = not names or address.path.strip("/") in names
        if address.home != domain or address.scheme != "user" or not is_meant:
            raise CardError(502, f"The card is that of {str(user_url)[:200]}.")
        digests = claims.get("protostub_digests") or []
        if (
            not isinstance(digests, list)
            or len(digests) > MAX_DIGESTS
            or not all(isinstance(each, str) for each in digests)
        ):
            raise CardError(502, "The card's digests are no list of texts.")
        push, hyperty = claims.get("push"), claims.get("hyperty")
        endpoint = push.get("endpoint") if isinstance(push, dict) else None
        is_theirs = isinstance(hyperty, str) and addresses.parse(hyperty).home == domain
        return Card(
            user_url=str(user_url),
            domain=domain,
            endpoint="" if endpoint is None else self._own(endpoint, domain, "push endpoint"),
            hyperty=str(hyperty) if is_theirs else "",
            protostub=self._own(claims.get("protostub"), domain, "protostub"),
            digests=tuple(digests),
            expires=expires,
            claims=claims,
        )

    def _own(self, url: Any, domain: str, what: str) -> str:
        """The URL, if it is the domain's own. Raises CardError."""
        base = urlsplit(self._settings.catalogue_of(domain))
        try:
            parts = urlsplit(url if isinstance(url, str) else "")
        except ValueError:
            raise CardError(502, f"The {what} {str(url)[:200]} is no URL.") from None
        is_plain = parts.scheme == "http" and is_loopback(parts.hostname or "")
        if parts.scheme != "https" and not is_plain:
            raise CardError(502, f"The {what} {str(url)[:200]} is not https.")
        if parts.hostname != domain and parts.netloc != base.netloc:
            raise CardError(502, f"The {what} {str(url)[:200]} is not at {domain}.")
        return str(url).rstrip("/")

    async def _json(self, url: str) -> dict[str, Any]:
        try:
            found = json.loads(await self._get(url, MAX_DOCUMENT))
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise CardError(502, f"{urlsplit(url).netloc} answers with no JSON object.")
        return found

    async def _get(self, url: str, most: int) -> bytes:
        try:
            answer = await fetch(url, self._settings.fetch, most)
        except FetchError as error:
            raise CardError(error.code, str(error)) from None
        if answer.status == 200:
            return answer.body
        code = 404 if answer.status in (404, 410) else 504
        raise CardError(code, f"{urlsplit(url).netloc} answers {answer.status}.")


def _named(user: str) -> tuple[str, tuple[str, ...]]:
    """The domain, and what the path of the user URL may be. Raises CardError."""
    names: tuple[str, ...]
    if "://" in user:
        address = addresses.parse(user)
        domain, names = address.home, (address.path.strip("/"),)
        is_user = address.scheme == "user"
    else:
        local, _, domain = user.rpartition("@")
        names, domain, is_user = (user, local), domain.lower(), bool(local)
    if not is_user or not domain or not names[0] or not user.isprintable() or "/" in domain:
        raise CardError(400, f"{user[:200]!r} is no user of a domain.")
    return domain, names


def _read(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        head, claims = (json.loads(_decoded(part)) for part in token.split(".")[:2])
        if len(token.split(".")) == 3 and isinstance(head, dict) and isinstance(claims, dict):
            return head, claims
    except (ValueError, RecursionError):
        pass
    raise CardError(502, "The card is no signed token.")


def _is_signed(token: str, head: Mapping[str, Any], keys: Any) -> bool:
    """RS256 by the key of that id; nothing else is taken."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import padding, rsa
    except ImportError:
        text = "A card cannot be checked: the package `cryptography` is not installed."
        raise CardError(501, text) from None
    text, _, signature = token.rpartition(".")
    for key in keys if isinstance(keys, list) else []:
        if not isinstance(key, dict) or key.get("kty") != "RSA" or head.get("alg") != "RS256":
            continue
        if key.get("kid") != head.get("kid"):
            continue
        try:
            e, n = (int.from_bytes(_decoded(key.get(name))) for name in ("e", "n"))
            public = rsa.RSAPublicNumbers(e, n).public_key()
            public.verify(_decoded(signature), text.encode(), padding.PKCS1v15(), hashes.SHA256())
        except (ValueError, InvalidSignature):
            continue
        return public.key_size >= 2048
    return False


def _decoded(text: Any) -> bytes:
    if not isinstance(text, str):
        raise ValueError("no text")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), "-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _number(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    with contextlib.suppress(OverflowError):
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    raise CardError(502, f"The card's `{name}` is no number.")
