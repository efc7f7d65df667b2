"""An issuer and its tokens, for nodes that ask for identities."""

from __future__ import annotations

import json
import time
from typing import Any

from joserfc import jwk, jwt

ISSUER, AUDIENCE, IDP = "https://idp.example", "the-node", "example.org"


class Authority:
    """An issuer whose keys are pasted: nothing is fetched."""

    def __init__(self) -> None:
        self._key = jwk.RSAKey.generate_key(2048)
        self.jwks = json.dumps({"keys": [self._key.as_dict(private=False, kid="k")]})

    def token(self, user: str = "alice") -> str:
        now = int(time.time())
        claims = {
            "iss": ISSUER, "sub": user, "aud": AUDIENCE, "exp": now + 7200, "iat": now,
            "email": f"{user}@{IDP}", "jti": str(time.perf_counter_ns()),
        }  # fmt: skip
        return jwt.encode({"alg": "RS256", "kid": "k"}, claims, self._key, algorithms=["RS256"])

    def row(self) -> dict[str, Any]:
        """The issuer as a row of a node's database."""
        return {
            "name": "bench", "kind": "external", "url": ISSUER, "aliases": "", "domains": IDP,
            "audiences": AUDIENCE, "algorithms": "RS256", "jwks_url": "", "jwks": self.jwks,
            "introspection_url": "", "client_id": "", "client_secret": "", "is_enabled": True,
            "changed_at": "2026-01-01 00:00:00",
        }  # fmt: skip
