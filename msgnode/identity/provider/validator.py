"""What django-oauth-toolkit asks of the provider: clients, codes, claims, the key that signs.

A browser is only sent back to a redirect URI that the client has registered, exactly. A native
client on this machine may use any port of a loopback address that it has registered by number (RFC
8252, 7.3); everything else is compared as text (RFC 9700, 2.1).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from django.contrib.auth.hashers import check_password
from django.utils import timezone
from joserfc import jws
from jwcrypto.jwk import JWK
from oauth2_provider.models import get_grant_model
from oauth2_provider.oauth2_validators import OAuth2Validator
from oauthlib.oauth2.rfc6749.errors import InvalidGrantError, InvalidRequestError

from msgnode.models import FormerClientSecret

from . import codes, keys
from .token_claims import claims_of

_LOOPBACK = re.compile(r"(http://(?:127\.0\.0\.1|\[::1\]))(?::[1-9]\d{0,4})?(/[!-~]*)?")


def is_registered(uri: str, registered: Iterable[str]) -> bool:
    """Whether a redirect URI is one of those registered."""
    plain = _without_port(uri)
    return any(
        uri == each or (plain is not None and plain == _without_port(each)) for each in registered
    )


def is_url(text: str) -> bool:
    """Whether a text can be read as a URL."""
    try:
        urlsplit(text)
    except ValueError:
        return False
    return True


def with_answer(uri: str, **answer: str) -> str:
    """A redirect URI with the parameters of an answer in its query, each once."""
    parts = urlsplit(uri)
    query = parse_qsl(parts.query, keep_blank_values=True)
    kept = [pair for pair in query if pair[0] not in answer]
    given = [(name, value) for name, value in answer.items() if value]
    return parts._replace(query=urlencode(kept + given)).geturl()


def _without_port(uri: str) -> tuple[str, str] | None:
    found = _LOOPBACK.fullmatch(uri)
    return (found[1], found[2] or "") if found else None


class Validator(OAuth2Validator):
    """RS256 with the keys of provider_keys; claims by scope.

    No code and no token is good any more once its user is switched off.
    """

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

    def _check_secret(self, provided_secret: str, stored_secret: str) -> bool:
        """Whether a client's secret is its present one, or for a while the one before."""
        if super()._check_secret(provided_secret, stored_secret):
            return True
        valid = FormerClientSecret.objects.filter(valid_until__gt=timezone.now())
        former = valid.filter(client__client_secret=stored_secret).first()
        return former is not None and check_password(provided_secret, former.secret_hash)

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
        return is_registered(redirect_uri, registered) and super().validate_redirect_uri(
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
            return bool(request.user.is_active)
        codes.end_issued(code, client)
        return False

    def validate_refresh_token(
        self, refresh_token: str, client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        """A refresh token that is shown again ends what was issued with it."""
        codes.end_if_used(refresh_token, client)
        is_valid = super().validate_refresh_token(refresh_token, client, request, *args, **kwargs)
        return bool(is_valid and request.user.is_active)

    def validate_bearer_token(self, token: str, scopes: Any, request: Any) -> bool:
        """Whether an access token is good."""
        is_valid = super().validate_bearer_token(token, scopes, request)
        return bool(is_valid and request.user.is_active)

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
