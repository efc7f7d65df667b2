"""A relying party as small as one can be: asks for a code, redeems it, reads the identity token.

Works against the embedded provider through Django's test client; verifies with joserfc, which the
provider does not use, so that a mistake of the one is not repeated by the other.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from typing import Any
from urllib.parse import parse_qs, urlsplit

from django.test import Client
from joserfc import jwt
from joserfc.jwk import KeySet

BACK = "https://client.example.org/back"


class RelyingParty:
    def __init__(self, browser: Client, client_id: str, redirect_uri: str = BACK) -> None:
        self.browser = browser
        self.client_id = client_id
        self.redirect_uri = redirect_uri
        self.verifier = secrets.token_urlsafe(48)
        self.state = secrets.token_urlsafe(8)
        self.nonce = "1,2,3"

    def question(self, **changes: str) -> dict[str, str]:
        """The query of an authorisation request; an empty change leaves a parameter out."""
        asked = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self.redirect_uri,
            "scope": "openid email profile",
            "state": self.state,
            "nonce": self.nonce,
            "code_challenge": challenge(self.verifier),
            "code_challenge_method": "S256",
            **changes,
        }
        return {name: value for name, value in asked.items() if value}

    def ask(self, **changes: str) -> Any:
        """The provider's answer to an authorisation request."""
        return self.browser.get("/o/authorize/", self.question(**changes))

    def code(self, **changes: str) -> str:
        """A code, the user being logged in and the client trusted."""
        answer = self.ask(**changes)
        assert answer.status_code == 302, answer.content
        said = query(answer["Location"])
        assert said["state"] == self.state
        return said["code"]

    def redeem(self, code: str, **changes: str) -> Any:
        """The answer of the token endpoint."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect_uri,
            "client_id": self.client_id,
            "code_verifier": self.verifier,
            **changes,
        }
        return self.browser.post("/o/token/", form)

    def tokens(self) -> dict[str, Any]:
        answer = self.redeem(self.code())
        assert answer.status_code == 200, answer.content
        found: dict[str, Any] = answer.json()
        return found

    def claims(self, id_token: str) -> dict[str, Any]:
        """The claims of an identity token that one of the published keys has signed."""
        keys = KeySet.import_key_set(self.browser.get("/o/.well-known/jwks.json").json())
        return dict(jwt.decode(id_token, keys, algorithms=["RS256"]).claims)


def challenge(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def query(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
