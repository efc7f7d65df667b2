"""Cards: what the domain asserts of a user to anybody who wants to reach them.

A card is a JWT of the provider (docs/reference/runtime.md, section 8.3): who the user is, and which
protostub leads to the user's domain, by address and by the digests of its code. Its audience,
`protofly`, is no client's: a card cannot be used to log in. The operator chooses which users have
cards (CONTACT_CARDS). Users' invitations to conversations here are signed as cards, too (section
8.5).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.utils import timezone

from msgnode.core import addresses
from msgnode.models import Allocation, PushEndpoint, Session
from msgnode.stubs import catalogue

from . import keys
from .token_claims import CARD_AUDIENCE, claims_of, subject_of, user_of, user_url_of

EVERYBODY = "*"
SECONDS = 3_600
MAX_NAME = 320
PROTOSTUB = "/.well-known/protocolstub/default"
PUSH = "/push"
"""Below it are the endpoints at which users are invited (msgnode.invitations)."""


def protostub() -> str:
    """The address of the stub that leads here."""
    return f"{settings.PUBLIC_URL}{PROTOSTUB}"


def card_of(name: str) -> dict[str, Any] | None:
    """The card of a user.

    Args:
        name: acct:bob@<domain>, bob@<domain>, an e-mail address, or a user URL.

    Returns:
        `assertion`, the JWT, with `userURL`, `protostub` and `expires` (seconds since the epoch);
        None if nobody has that name, or he has no card.
    """
    user = _user(name)
    if user is None:
        return None
    now = int(datetime.now(UTC).timestamp())
    claims = {**_asserted(user), "iat": now, "exp": now + SECONDS, **_reached_at(subject_of(user))}
    return {
        "assertion": keys.sign(claims),
        "userURL": claims["user_url"],
        "protostub": claims["protostub"],
        "expires": claims["exp"],
    }


def signed_invitation(subject: str, said: Mapping[str, Any], expires: int) -> str | None:
    """The card of a user, good for one invitation of his, whoever else has a card here.

    Args:
        subject: `sub` of the user.
        said: the claims about the invitation.
        expires: seconds since the epoch.

    Returns:
        The JWT; None if there is no such user.
    """
    user = user_of(subject)
    if user is None:
        return None
    times = {"iat": int(datetime.now(UTC).timestamp()), "exp": expires}
    return keys.sign({**_asserted(user), **times, **said})


def _asserted(user: Any) -> dict[str, Any]:
    """What every card says of a user."""
    stubs = [each for each in catalogue.served("protocolstub") if not each.is_idp_proxy]
    return {
        "iss": settings.PROVIDER["ISSUER"],
        "sub": subject_of(user),
        "aud": CARD_AUDIENCE,
        "user_url": user_url_of(user),
        "protostub": protostub(),
        "protostub_digests": [f"sha256-{base64.b64encode(each.digest).decode()}" for each in stubs],
    }


def _reached_at(subject: str) -> dict[str, Any]:
    """Where a user is invited, if his runtime has asked for that."""
    if not settings.INVITATIONS["ON"]:
        return {}
    good = PushEndpoint.objects.filter(subject=subject, expires_at__gt=timezone.now())
    newest = good.order_by("-renewed_at").first()
    if newest is None:
        return {}
    said: dict[str, Any] = {"push": {"endpoint": f"{settings.PUBLIC_URL}{PUSH}/{newest.pk}"}}
    return {**said, "hyperty": newest.hyperty} if _is_held(newest) else said


def _is_held(endpoint: PushEndpoint) -> bool:
    """Whether a session of the user holds the hyperty still: others may have its address by now."""
    hyperty, runtime_url = endpoint.hyperty, endpoint.runtime_url
    theirs = Session.objects.filter(issuer=settings.PROVIDER["ISSUER"], subject=endpoint.subject)
    theirs = theirs.exclude(state=Session.State.CLOSED)
    if not hyperty or addresses.is_under(hyperty, runtime_url):
        return bool(hyperty) and theirs.filter(runtime_url=runtime_url).exists()
    return Allocation.objects.filter(address=hyperty, session__in=theirs).exists()


def _user(name: str) -> Any:
    """The one active user of this name who has a card."""
    name = name.removeprefix("acct:")
    if len(name) > MAX_NAME or not name.isprintable() or not settings.CONTACT_CARDS:
        return None
    if "://" in name:
        address = addresses.parse(name)
        if address.scheme != "user" or address.home != settings.DOMAIN.lower():
            return None
        name = address.path.strip("/")
    known = get_user_model().objects.filter(is_active=True)
    if settings.CONTACT_CARDS != EVERYBODY:
        known = known.filter(groups__name=settings.CONTACT_CARDS)
    else:  # whom an account of the console belongs to is nobody's to ask
        known = known.filter(is_staff=False, is_superuser=False)
    local, _, domain = name.rpartition("@")
    is_ours = domain.lower() == settings.DOMAIN.lower() or not local
    found = list(known.filter(email__iexact=name)[:2]) if local else []
    found = [each for each in found if "email" in claims_of(each)]  # nobody else's as well
    if not found and is_ours:
        found = list(known.filter(username=local or name)[:2])
    return found[0] if len(found) == 1 else None
