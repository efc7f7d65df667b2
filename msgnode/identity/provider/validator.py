"""The claims about users in tokens, and the keys that sign them (django-oauth-toolkit)."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from joserfc import jws, jwt
from joserfc.errors import JoseError
from jwcrypto.jwk import JWK
from oauth2_provider.models import get_application_model, get_grant_model, get_id_token_model
from oauth2_provider.oauth2_validators import OAuth2Validator
from oauthlib.oauth2.rfc6749.errors import InvalidGrantError, InvalidRequestError

from msgnode.identity.claims import statement
from msgnode.identity.issuers import Issuer

from . import codes, keys, redirects

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


def subject_of(user: Any) -> str:
    """`sub`: never given to another user, even when names change hands."""
    return str(user.pk)


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


class Validator(OAuth2Validator):
    """RS256 with the keys of provider_keys; claims by scope."""

    oidc_claim_scope = {  # noqa: RUF012  (the library's name and type)
        **OAuth2Validator.oidc_claim_scope,
        "preferred_username": "profile",
        "name": "profile",
        "email": "email",
        "email_verified": "email",
    }

    def get_additional_claims(self, request: Any) -> dict[str, Any]:
        """What identity tokens say of the user."""
        return claims_of(request.user)

    def get_discovery_claims(self, request: Any) -> list[str]:
        """The claims that the discovery document promises."""
        return ["sub", "email", "email_verified", "preferred_username", "name"]

    def validate_client_id(self, client_id: str, request: Any, *args: Any, **kwargs: Any) -> bool:
        """A NUL, which PostgreSQL does not take, is no client."""
        return "\x00" not in client_id and super().validate_client_id(
            client_id, request, *args, **kwargs
        )

    def validate_redirect_uri(
        self, client_id: str, redirect_uri: str, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        """Whether the client has registered this very URI; no pattern counts."""
        registered = request.client.redirect_uris.split()
        return redirects.is_registered(redirect_uri, registered) and super().validate_redirect_uri(
            client_id, redirect_uri, request, *args, **kwargs
        )

    def validate_silent_login(self, request: Any) -> bool:
        """Left to the view (`prompt=none`), which knows the browser."""
        return True

    def validate_silent_authorization(self, request: Any) -> bool:
        """Left to the view, too."""
        return True

    def _create_authorization_code(self, request: Any, code: Any, expires: Any = None) -> Any:
        """A code with its nonce, and without claims, which this provider does not read."""
        asked = request.nonce or ""
        if len(asked) > codes.MAX_NONCE or "\x00" in asked:
            text = f"The nonce is longer than {codes.MAX_NONCE} characters, or has a NUL."
            raise InvalidRequestError(text, request=request)
        request.nonce, request.claims = codes.kept_with_code(asked)
        return super()._create_authorization_code(request, code, expires)

    def get_authorization_code_nonce(
        self, client_id: str, code: str, redirect_uri: str, request: Any
    ) -> str | None:
        """The nonce that was given with a code."""
        grant = get_grant_model().objects.filter(code=code).first()
        return (codes.nonce_of(grant) or None) if grant is not None else None

    def validate_code(
        self, client_id: str, code: str, client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        """A code that is shown again ends what was issued from it."""
        if super().validate_code(client_id, code, client, request, *args, **kwargs):
            return True
        codes.end_issued(code, client)
        return False

    def validate_refresh_token(
        self, refresh_token: str, client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        """A refresh token that is shown again ends what was issued with it."""
        codes.end_if_used(refresh_token, client)
        return bool(super().validate_refresh_token(refresh_token, client, request, *args, **kwargs))

    def _save_bearer_token(self, token: dict[str, Any], request: Any, *args: Any) -> None:
        """Of two that use a refresh token at once, the first has tokens; no other is told them."""
        super()._save_bearer_token(token, request, *args)
        if not token["access_token"]:  # the toolkit has stored a hash of it only
            raise InvalidGrantError("The refresh token has just been used.", request=request)

    def _create_refresh_token(
        self, request: Any, refresh_token_code: str, access_token: Any, previous: Any
    ) -> Any:
        made = super()._create_refresh_token(request, refresh_token_code, access_token, previous)
        if previous is None and request.code:
            made.token_family = codes.family_of(request.code)
            made.save(update_fields=["token_family"])
        return made

    def finalize_id_token(
        self, id_token: dict[str, Any], token: Any, token_handler: Any, request: Any
    ) -> str:
        """Sign an identity token with the provider's current key, and store that it was given."""
        claims, expires = self.get_id_token_dictionary(token, token_handler, request)
        id_token.update(claims, jti=codes.new_id(request))
        if "nonce" not in id_token and request.nonce:
            id_token["nonce"] = request.nonce
        text = keys.sign(json.loads(json.dumps(id_token, default=str)))
        request.id_token = request.access_token = self._save_id_token(
            id_token["jti"], request, expires
        )
        return text

    def _get_key_for_token(self, token: str) -> JWK | None:
        """The key that signed a token of ours, as the toolkit's log-out takes it (jwcrypto's)."""
        if keys.verify(token) is None:
            return None
        kid = jws.extract_compact(token.encode()).headers().get("kid")
        public = next((key for key in keys.jwk_set()["keys"] if key["kid"] == kid), None)
        return JWK(**public) if public else None


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
