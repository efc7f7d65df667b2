"""Checks the claims of a token, and makes an Identity of them. Pure.

read(claims, …)                    claims of a verified token -> ValidatedClaims, or Rejected
match_profile(claims, credential)  the profile around a token must agree with the token

Rules (docs/reference/identity.md, section 7, item 4)
- `exp` is required, a number; `nbf` and `iat`, if present, must not be in the future; clocks may
  differ by `leeway` seconds.
- `aud` must name a client of ours; with several, so must `azp`, if present.
- `sub` is a text that can be printed.
- A subject is named by what its issuer vouches for, and else by `sub` (see `names_in`): a name that
  people choose for themselves would be that of somebody else. In a user URL it is one segment.
- The profile's user URL, e-mail, user name and subject must be those names; its guid must be the
  hash of the key in `nonce`.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeGuard
from urllib.parse import unquote

from msgnode.core.addresses import segment
from msgnode.core.digest import digest
from msgnode.core.identity import Identity

from .credentials import Credential, Rejected
from .issuers import Issuer

MAX_TEXT = 255
MAX_GROUPS = 64
MAX_ALIASES = 12
_HASH = re.compile(r"[0-9a-f]{64}")
_ADDRESS = re.compile(r"[^\s@]+@[^\s@/]+")


@dataclass(frozen=True, slots=True)
class ValidatedClaims:
    """The validated claims of an issuer about a subject.

    `names` are those that the issuer vouches for, the best first; `ends` is their expiry (seconds,
    epoch); `token_name` identifies the token, "" for the digest of its text.
    """

    issuer: Issuer
    claims: dict[str, Any]
    subject: str
    names: tuple[str, ...]
    nonce: str
    issued: float
    ends: float
    token_name: str = ""

    def identity(self, idp: str = "", guid: str = "") -> Identity:
        """The identity, under one of the issuer's domains."""
        domain = idp or self.issuer.all_domains[0]
        segments = self.segments()
        user_url = f"user://{domain}/{segments[0]}"
        groups = self.claims.get("groups")
        every = (f"user://{each}/{own}" for each in self.issuer.all_domains for own in segments)
        aliases = dict.fromkeys(each for each in every if each != user_url)
        return Identity(
            issuer=self.issuer.url,
            subject=self.subject,
            username=self.names[0] if self.names else user_url,
            idp_domain=domain,
            user_url=user_url,
            guid=guid,
            groups=_groups(groups),
            expires=self.ends,
            aliases=tuple(islice(aliases, MAX_ALIASES)),
            issued=self.issued,
            name_claim=self.issuer.name_claim,
        )

    def segments(self) -> tuple[str, ...]:
        """The names as last parts of user URLs; the subject's is always among them.

        A subject that looks like an e-mail address is written so that it is nobody's address.
        """
        subject = segment(self.subject).replace("@", "%40")
        return tuple(dict.fromkeys((*map(segment, self.names), subject)))


def read(
    claims: dict[str, Any], issuer: Issuer, audiences: Collection[str], now: float, leeway: float
) -> ValidatedClaims:
    """Check the claims of a token whose signature is good. Raises Rejected."""
    if claims.get("iss") not in (issuer.url, *issuer.aliases):
        raise Rejected("The token is of another issuer.")
    expires = _seconds(claims, "exp")
    if expires is None:
        raise Rejected("The token has no end (exp).")
    if expires + leeway <= now:
        raise Rejected("The token has expired.")
    for name in ("nbf", "iat"):
        moment = _seconds(claims, name)
        if moment is not None and moment - leeway > now:
            raise Rejected(f"The token is from the future ({name}).")
    _check_audience(claims, audiences)
    return statement(claims, issuer, expires + leeway)


def id_token_name(jti: str) -> str:
    """The name of an identity token of the node's own provider, to bind and to revoke it.

    The provider stores the ids of the tokens it has issued, not their texts.
    """
    return digest(f"id token {jti}")


def statement(claims: dict[str, Any], issuer: Issuer, ends: float) -> ValidatedClaims:
    """Make ValidatedClaims of checked claims."""
    subject = claims.get("sub")
    if not is_name(subject):
        raise Rejected("The token names no subject (sub) that can be printed.")
    nonce = claims.get("nonce")
    names = names_in(claims, issuer.name_claim)
    issued = _seconds(claims, "iat") or 0.0
    text = nonce if isinstance(nonce, str) else ""
    return ValidatedClaims(issuer, claims, subject, names, text, issued, ends)


def names_in(claims: dict[str, Any], name_claim: str) -> tuple[str, ...]:
    """The names that an issuer vouches for, the best first; perhaps none.

    They are the e-mail address, if the claim `email_verified` says `true` (or "true", as issuers
    write whose claims are all texts), and the value of `name_claim`. For `email` the issuer's word
    in `email_verified` still counts, if there is one. `preferred_username` is chosen by its user
    and never an address; no other claim is a name at all.

    Args:
        claims: the claims of a verified token.
        name_claim: the claim for which the issuer vouches, by the operator's word; "" for none.
    """
    said = claims.get("email_verified")
    is_verified = said is True or said == "true" or (said is None and name_claim == "email")
    email, named = claims.get("email"), claims.get(name_claim) if name_claim else None
    names = [email] if is_verified and _is_address(email) else []
    is_chosen = name_claim == "preferred_username" and is_name(named) and "@" in named
    if name_claim != "email" and is_name(named) and not is_chosen:
        names.append(named)
    return tuple(dict.fromkeys(names))


def match_profile(said: ValidatedClaims, credential: Credential) -> Identity:
    """The identity of a token and its profile. Raises Rejected if they contradict each other."""
    domains = said.issuer.all_domains
    if credential.idp and credential.idp not in domains:
        raise Rejected(f"The issuer does not speak for the domain {credential.idp}.")
    profile = credential.profile
    segments = said.segments()
    urls = {each.lower() for each in segments}
    user_url = profile.get("userURL") or profile.get("UserURL")
    if isinstance(user_url, str) and user_url:
        head, _, name = user_url.partition("://")[2].partition("/")
        if head.lower() not in domains or name.lower() not in urls:
            right = f"user://{credential.idp or domains[0]}/{segments[0]}"
            raise Rejected(f"The user URL of the profile is not the token's, which is {right}.")
    names = urls | {name.lower() for name in said.names}
    for key in ("email", "preferred_username", "username"):
        value = profile.get(key)
        if value and str(value).lower() not in names:
            text = f"The profile's {key} is not the token's, or its issuer does not vouch for it."
            raise Rejected(text)
    if profile.get("sub") not in (None, "", said.subject):
        raise Rejected("The profile's sub is not the token's.")
    return said.identity(credential.idp, _guid(profile.get("guid"), said.nonce))


def key_of(nonce: str) -> bytes | None:
    """The public key in a nonce, None if it has none.

    It is the bytes of an SPKI structure, written as numbers and commas, perhaps URL-encoded.
    """
    try:
        key = bytes(int(number) for number in unquote(nonce).split(","))
    except ValueError:
        return None
    return key if len(key) >= 64 else None


def _guid(guid: Any, nonce: str) -> str:
    """The claimed `user-guid://<hash>`, if its hash is that of the key."""
    if not guid:
        return ""
    claimed = str(guid).rstrip("/").rpartition("/")[2].lower()
    if not _HASH.fullmatch(claimed):
        return ""  # an older `user-uuid`, which cannot be checked
    key = key_of(nonce)
    written = [nonce.encode(), unquote(nonce).encode(), *([key] if key is not None else [])]
    if claimed not in {hashlib.sha256(each).hexdigest() for each in written}:
        raise Rejected("The guid is not that of the key in the token.")
    return f"user-guid://{claimed}"


def _check_audience(claims: dict[str, Any], audiences: Collection[str]) -> None:
    audience = claims.get("aud")
    named = [audience] if isinstance(audience, str) else audience
    if not isinstance(named, list) or not any(
        isinstance(each, str) and each in audiences for each in named
    ):
        raise Rejected("The token is for another audience.")
    party = claims.get("azp")
    is_ours = isinstance(party, str) and party in audiences
    if len(named) > 1 and party is not None and not is_ours:
        raise Rejected("The token was issued to another party.")


def _seconds(claims: dict[str, Any], name: str) -> float | None:
    """A time in the claims; None if absent. A text or a boolean is refused."""
    value = claims.get(name)
    if value is None:
        return None
    with suppress(OverflowError):
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if is_number and math.isfinite(value):
            return float(value)
    raise Rejected(f"The token's {name} is not a number.")


def _groups(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    listed = value[:MAX_GROUPS]
    return tuple(each for each in listed if isinstance(each, str) and each.isprintable())


def _is_address(value: Any) -> TypeGuard[str]:
    return is_name(value) and _ADDRESS.fullmatch(value) is not None


def is_name(value: Any) -> TypeGuard[str]:
    """Whether a claim is a text that can be shown, and stored by every database."""
    return isinstance(value, str) and 0 < len(value) <= MAX_TEXT and value.isprintable()
