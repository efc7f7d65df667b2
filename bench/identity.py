"""What the bench of identity needs: an issuer, tokens, and an authenticator that knows both."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
from joserfc import jwk, jwt

from msgnode.bus.ports import DeliveryResult, Response
from msgnode.bus.return_paths import ReturnPath
from msgnode.core import messages
from msgnode.core.identity import Speaker
from msgnode.identity.admission_policy import AdmissionPolicy, Mode
from msgnode.identity.authenticator import MessageAuthenticator
from msgnode.identity.bindings import Bindings
from msgnode.identity.http import Fetcher
from msgnode.identity.issuers import Issuer, IssuerBook
from msgnode.identity.jwks import JwksCache
from msgnode.identity.verifier import Verifier

ISSUER, AUDIENCE, IDP = "https://idp.example", "the-node", "example.org"
SIZES = (100, 1_000, 10_000)
Run = Callable[[], object]


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

    def identity(self, user: str = "alice") -> dict[str, Any]:
        """An identity object as runtimes send it."""
        wrapper = {"tokenID": self.token(user), "tokenIDJSON": {"email": f"{user}@{IDP}"}}
        return {
            "assertion": base64.b64encode(json.dumps(wrapper).encode()).decode(),
            "idp": {"domain": IDP, "protocol": "OIDC"},
            "userProfile": {"userURL": f"user://{IDP}/{user}@{IDP}"},
        }

    def row(self) -> dict[str, Any]:
        """The issuer as a row of a node's database."""
        return {
            "name": "bench", "kind": "external", "url": ISSUER, "aliases": "", "domains": IDP,
            "audiences": AUDIENCE, "algorithms": "RS256", "jwks_url": "", "jwks": self.jwks,
            "introspection_url": "", "client_id": "", "client_secret": "", "is_enabled": True,
            "changed_at": "2026-01-01 00:00:00",
        }  # fmt: skip


class _Session:
    """A session, as the authenticator sees one."""

    id, runtime_url, token, token_hash = "s", "runtime://localhost/1", b"", ""
    bound_at, is_connected, is_here, is_behind = 0.0, True, True, False

    def __init__(self) -> None:
        self.speaker = Speaker(self.id, self.runtime_url)

    def deliver(self, frame: bytes) -> DeliveryResult:
        return DeliveryResult.WRITTEN

    def deliver_request(self, frame: bytes, path: ReturnPath) -> DeliveryResult:
        return self.deliver(frame)

    def deliver_response(self, frame: bytes, response: Response) -> DeliveryResult:
        return DeliveryResult.WRITTEN

    def deliver_traced(self, frame: bytes, beside: Any, traceparent: str) -> DeliveryResult:
        return self.deliver(frame)

    def has_asked(self, sender: str, id_: str, responder: str, now: float) -> bool:
        return False

    def has_forgotten(self) -> bool:
        return False

    def missed(self) -> None:
        raise AssertionError("nothing is delivered here")

    def when_writable(self, callback: Callable[[], None]) -> None:
        """It is never behind."""


def loads() -> Iterator[tuple[str, str, Run]]:
    """What is measured: (case, what the message carries, one check)."""
    authority = Authority()
    issuer = Issuer(ISSUER, (), (IDP,), frozenset({AUDIENCE}), ("RS256",), jwks=authority.jwks)
    verifier = Verifier(JwksCache(_nothing, 60), Fetcher(1, (), False), None, 60, 10_000, 100)
    verifier.use(IssuerBook([issuer]))
    session = _Session()
    authenticator = MessageAuthenticator(
        verifier,
        AdmissionPolicy(Mode.ANONYMOUS, {}),
        frozenset(),
        passes_unknown=False,
        checks=1e9,
        binds=True,
        bindings=Bindings(lambda url: True, 10_000, 10_000),
        log_in=lambda *_: None,
    )
    identity = authority.identity()
    for size in SIZES:
        plain = _message({"value": "x" * size})
        carrying = _message({"identity": identity, "value": "x" * size})
        for what, message in (("no identity", plain), ("the same identity", carrying)):
            yield f"{size:,} B", what, partial(_check, authenticator, message, session)
    one, other = (_message({"identity": authority.identity(u), "value": ""}) for u in ("a", "b"))

    def in_turn() -> None:
        _check(authenticator, one, session)
        _check(authenticator, other, session)

    yield "two in turn", "known identities", in_turn

    def anew() -> None:
        verifier.forget()
        authenticator.forget()
        authenticator.speaker_of(one, session)

    yield "first", "an unknown token", anew


_read = msgspec.json.Decoder(messages.IdentityFields).decode


def _check(
    authenticator: MessageAuthenticator, message: messages.Message, session: _Session
) -> None:
    """One check with all it costs: the reading of the body is counted in."""
    _read(message.body)
    authenticator.speaker_of(message, session)


def _message(body: dict[str, Any]) -> messages.Message:
    raw = {"id": 1, "type": "update", "from": "hyperty://d/1", "to": "hyperty://d/2", "body": body}
    return messages.parse(msgspec.json.encode(raw))


async def _nothing(issuer: Issuer) -> dict[str, Any]:
    return {"keys": []}
