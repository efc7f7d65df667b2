"""The claims about users in the provider's tokens, and which tokens are valid."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from joserfc import jwt
from joserfc.errors import JoseError
from oauth2_provider.models import get_application_model, get_id_token_model

from msgnode.identity.claims import statement
from msgnode.identity.issuers import Issuer

from . import keys

CARD_AUDIENCE = "protofly"
"""Of the cards of users, which everybody may fetch: no token for it logs anybody in."""


def claims_of(user: Any) -> dict[str, Any]:
    """The claims about a user, whatever the scope.

    An address is verified if an operator entered it, for this account alone: users of the domain
    are made in the console. A user name that looks like an address is not that address.
    """
    username = user.get_username()
    claims: dict[str, Any] = {"name": user.get_full_name() or username}
    if is_email(user.email) and not _others_with(user):
        claims |= {"email": user.email, "email_verified": True}
    if "@" not in username or username == claims.get("email"):
        claims["preferred_username"] = username
    return claims


def as_text(value: Any) -> str:
    """A claim as older clients read it: a text as it is, anything else in JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def subject_of(user: Any) -> str:
    """`sub`: never given to another user, even when names change hands."""
    return str(user.pk)


def user_of(subject: str) -> Any:
    """The active user of a `sub`, None if there is none."""
    users = get_user_model().objects
    return users.filter(pk=subject, is_active=True).first() if subject.isdecimal() else None


def user_url_of(user: Any) -> str:
    """The user URL that the registry and runtimes know the user by."""
    issuer = Issuer(settings.PROVIDER["ISSUER"], name_claim="preferred_username")
    named = statement({**claims_of(user), "sub": subject_of(user)}, issuer, 0.0)
    return f"user://{settings.DOMAIN}/{named.segments()[0]}"


def name_fault(user: Any) -> str:
    """Why a user is not named by what the account says, "" if all is well."""
    claims = claims_of(user)
    if is_email(user.email) and "email" not in claims:
        return f"another account has the address {user.email}, so it names neither"
    if "preferred_username" not in claims:
        return "the user name looks like an e-mail address, which is not that of the account"
    return ""


def _others_with(user: Any) -> bool:
    """Whether another account has the same e-mail address."""
    return bool(
        get_user_model().objects.filter(email__iexact=user.email).exclude(pk=user.pk).exists()
    )


def is_email(text: str) -> bool:
    """Whether a text is an e-mail address."""
    try:
        validate_email(text)
    except ValidationError:
        return False
    return True


def verified_claims(id_token: str) -> dict[str, Any] | None:
    """The claims of a token of ours that is valid now, and not revoked; None of any other text."""
    claims = keys.verify(id_token)
    if claims is None:
        return None
    try:
        jwt.JWTClaimsRegistry(leeway=60).validate(claims)
    except JoseError:
        return None
    known = (
        bool(claims.get("jti"))
        and get_application_model().objects.filter(client_id=str(claims.get("aud", ""))).exists()
        and get_id_token_model().objects.filter(jti=claims["jti"]).exists()
    )
    return claims if known and claims.get("iss") == settings.PROVIDER["ISSUER"] else None
