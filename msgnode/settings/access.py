"""Settings of who gets in that are more than a line: the OpenID provider, the policy of pages."""

from __future__ import annotations

from typing import Any

PROVIDER_PATH = "o"
"""The issuer is the node's public URL followed by this; the provider's pages are below it."""

SCOPES = {
    "openid": "Know who you are",
    "email": "See your e-mail address",
    "profile": "See your name",
    "introspection": "Ask about tokens (for resource servers)",
}

SELF = "'self'"
NONE = "'none'"


def provider(issuer: str, lifetimes: dict[str, int], *, is_production: bool) -> dict[str, Any]:
    """The setting OAUTH2_PROVIDER: code flow with PKCE S256 only, tokens kept as hashes.

    Plain http redirects are for development on the loopback; production takes https only.
    """
    return {
        "OIDC_ENABLED": True,
        "OIDC_ISS_ENDPOINT": issuer,
        # Only asked whether it is there: msgnode.identity.provider.keys has the keys themselves.
        "OIDC_RSA_PRIVATE_KEY": "in the database",
        "OIDC_RESPONSE_TYPES_SUPPORTED": ["code"],
        "OAUTH2_RESPONSE_TYPES_SUPPORTED": ["code"],
        "OAUTH2_GRANT_TYPES_SUPPORTED": ["authorization_code", "refresh_token"],
        "OIDC_TOKEN_ENDPOINT_AUTH_METHODS_SUPPORTED": [
            "none", "client_secret_basic", "client_secret_post",
        ],
        "OIDC_RP_INITIATED_LOGOUT_ENABLED": True,
        "OIDC_RP_INITIATED_LOGOUT_ALWAYS_PROMPT": False,
        "OAUTH2_VALIDATOR_CLASS": "msgnode.identity.provider.validator.Validator",
        "SCOPES": SCOPES,
        "DEFAULT_SCOPES": ["openid"],
        "PKCE_REQUIRED": True,
        "ACCESS_TOKEN_GENERATOR": "msgnode.identity.provider.grants.new_token",
        "REFRESH_TOKEN_GENERATOR": "msgnode.identity.provider.grants.new_token",
        "ACCESS_TOKEN_EXPIRE_SECONDS": lifetimes["ID_TOKEN_SECONDS"],
        "ID_TOKEN_EXPIRE_SECONDS": lifetimes["ID_TOKEN_SECONDS"],
        "REFRESH_TOKEN_EXPIRE_SECONDS": lifetimes["REFRESH_TOKEN_SECONDS"],
        "AUTHORIZATION_CODE_EXPIRE_SECONDS": 60,
        "ROTATE_REFRESH_TOKEN": True,
        "REFRESH_TOKEN_REUSE_PROTECTION": True,
        "ALLOWED_REDIRECT_URI_SCHEMES": ["https"] if is_production else ["http", "https"],
        "ALLOWED_SCHEMES": ["https"] if is_production else ["http", "https"],
        "OIDC_JWKS_MAX_AGE_SECONDS": 300,
        **{
            f"COMPLIANT_BCP_RFC9700_{gate}": True
            for gate in (
                "IMPLICIT_GRANT", "PASSWORD_GRANT", "PKCE_METHOD", "ACCESS_TOKEN_TRANSPORT",
                "AUTHZ_RESPONSE_ISS", "TOKEN_STORAGE", "REFRESH_TOKEN", "REDIRECT_URI_MATCHING",
                "PKCE_REQUIRED",
            )
        },
        "COMPLIANT_BCP_RFC9700_REDIRECT_URI_SCHEME": is_production,
    }  # fmt: skip


def content_security_policy() -> dict[str, Any]:
    """What pages may load: this node's own files and nothing inline.

    msgnode.web.headers has the exceptions.
    """
    return {
        "DIRECTIVES": {
            "default-src": [NONE],
            "script-src": [SELF],
            "style-src": [SELF],
            "img-src": [SELF, "data:"],
            "font-src": [SELF],
            "connect-src": [SELF],
            "form-action": [SELF],
            "base-uri": [NONE],
            "frame-ancestors": [NONE],
            "object-src": [NONE],
        }
    }
