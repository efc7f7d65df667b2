"""Issues assertions and tokens for a grant, without a browser's round trip.

A grant is one of
- a session that is bound to one of the provider's users (its subject),
- a valid identity token of the provider that carries the requested contents as its nonce,
- the URL with which a login begun by `login_url` came back: its code, redeemed once.

The login that `login_url` begins is that of the node's own client CONNECTOR. Its PKCE verifier is
derived from the `state`, so that any worker can redeem the code without remembering it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import uuid
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_id_token_model,
    set_token_value,
)

from msgnode.core import base64url
from msgnode.core.digest import digest
from msgnode.identity.ports import AssertionRequest

from . import codes, keys
from .token_claims import as_text, claims_of, subject_of, user_of, user_url_of, verified_claims

CONNECTOR = "idm"
"""Client id of the node's own identity connector."""

_SCOPE = "openid email profile"


def returns_to() -> str:
    """Where a log-in for the connector ends: a page that says so; its URL carries the code."""
    return f"{settings.PROVIDER['ISSUER']}/done"


def login_url(request: AssertionRequest) -> str:
    """Where a person logs in, with what the assertion is to bind as nonce."""
    state = secrets.token_urlsafe(24)
    query = {
        "response_type": "code",
        "client_id": CONNECTOR,
        "redirect_uri": returns_to(),
        "scope": _SCOPE,
        "state": state,
        "code_challenge": _challenge(_verifier(state)),
        "code_challenge_method": "S256",
        **({"nonce": request.contents[: codes.MAX_NONCE]} if request.contents else {}),
    }
    return f"{settings.PROVIDER['ISSUER']}/authorize/?{urlencode(query)}"


def assertion(request: AssertionRequest) -> dict[str, Any] | None:
    """An identity object, or None where a log-in is needed first.

    docs/reference/identity.md, section 3.
    """
    if request.token and (claims := verified_claims(request.token)):
        if request.contents and claims.get("nonce") != request.contents:
            return None
        user = user_of(str(claims.get("sub", "")))
        return _identity(user, request.token, claims) if user else None
    user, nonce = _granted(request)
    if user is None:
        return None
    token, claims = mint(user, nonce or request.contents)
    return _identity(user, token, claims)


def new_token(_request: Any = None) -> str:
    """A new access or refresh token; core.tokens knows by its beginning that it is one."""
    return f"mna_{secrets.token_urlsafe(32)}"


def access_token(request: AssertionRequest) -> dict[str, Any] | None:
    """An access-token object; `request.token` is given back for the new one.

    docs/reference/identity.md, section 3.
    """
    former = _valid(request.token) if request.token else None
    user = former.user if former is not None else _granted(request)[0]
    if user is None:
        return None
    text = new_token()
    lifetime = settings.PROVIDER["ID_TOKEN_SECONDS"]
    row = get_access_token_model()(
        user=user,
        application=_client(),
        expires=timezone.now() + timedelta(seconds=lifetime),
        scope=_SCOPE,
    )
    set_token_value(row, text)
    with transaction.atomic():
        if request.token:
            _tokens(request.token).delete()
        row.save()
    return {
        "domain": settings.DOMAIN,
        "resources": list(request.resources),
        "accessToken": text,
        "expires": int(row.expires.timestamp()),
        "input": {"user": user_url_of(user)},
    }


def claims_of_token(text: str) -> dict[str, Any] | None:
    """What introspection says of an access token; None if it is not valid now."""
    row = _valid(text)
    if row is None:
        return None
    return {
        "iss": settings.PROVIDER["ISSUER"],
        "sub": subject_of(row.user),
        "exp": int(row.expires.timestamp()),
        "iat": int(row.created.timestamp()),
        "client_id": row.application.client_id if row.application else "",
        "scope": row.scope,
        **claims_of(row.user),
    }


def mint(user: Any, nonce: str) -> tuple[str, dict[str, Any]]:
    """A signed identity token for the connector's client, and its claims."""
    now = timezone.now()
    expires = now + timedelta(seconds=settings.PROVIDER["ID_TOKEN_SECONDS"])
    jti = uuid.uuid4()
    claims = {
        "iss": settings.PROVIDER["ISSUER"],
        "aud": CONNECTOR,
        "sub": subject_of(user),
        "iat": int(now.timestamp()),
        "exp": int(expires.timestamp()),
        "jti": str(jti),
        **claims_of(user),
        **({"nonce": nonce} if nonce else {}),
    }
    token = keys.sign(claims)
    get_id_token_model().objects.create(
        jti=jti, user=user, application=_client(), expires=expires, scope=_SCOPE
    )
    return token, claims


def _granted(request: AssertionRequest) -> tuple[Any, str]:
    """The user a grant is of, and the nonce it was asked for with."""
    issuer, subject = request.subject
    if subject and issuer == settings.PROVIDER["ISSUER"]:
        return user_of(subject), request.contents
    return _redeemed(request.username_hint)


@transaction.atomic
def _redeemed(returned_url: str) -> tuple[Any, str]:
    """The user and nonce of a code, which is used up by being looked at."""
    try:
        asked = parse_qs(urlsplit(returned_url).query)
    except ValueError:  # a name, perhaps: no URL
        return None, ""
    query = {name: values[0] for name, values in asked.items()}
    code, state = query.get("code", ""), query.get("state", "")
    if not code or not state or "\x00" in code:
        return None, ""
    grants = get_grant_model().objects.select_for_update().select_related("user", "application")
    grant = grants.filter(code=code, application__client_id=CONNECTOR).first()
    if grant is None:
        return None, ""
    grant.delete()
    is_ours = hmac.compare_digest(grant.code_challenge, _challenge(_verifier(state)))
    if grant.is_expired() or not is_ours or not grant.user.is_active:
        return None, ""
    return grant.user, codes.nonce_of(grant)


def _identity(user: Any, token: str, claims: dict[str, Any]) -> dict[str, Any]:
    wrapped = {"tokenID": token, "tokenIDJSON": {name: as_text(v) for name, v in claims.items()}}
    return {
        "assertion": base64.b64encode(json.dumps(wrapped).encode()).decode(),
        "idp": {"domain": settings.DOMAIN, "protocol": "OIDC"},
        "userProfile": {**claims_of(user), "sub": subject_of(user), "userURL": user_url_of(user)},
        "expires": int(claims["exp"]),
    }


def _valid(token: str) -> Any:
    """The row of an access token, None if it is not valid now."""
    row = _tokens(token).select_related("user", "application").first()
    is_good = row is not None and row.is_valid() and row.user is not None and row.user.is_active
    return row if is_good else None


def _tokens(text: str) -> Any:
    return get_access_token_model().objects.filter(token_checksum=digest(text))


def _client() -> Any:
    return get_application_model().objects.get(client_id=CONNECTOR)


def _verifier(state: str) -> str:
    mac = hmac.new(settings.SECRET_KEY.encode(), f"pkce {state}".encode(), hashlib.sha256)
    return base64url.encode(mac.digest())


def _challenge(verifier: str) -> str:
    return base64url.encode(hashlib.sha256(verifier.encode()).digest())
