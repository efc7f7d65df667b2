"""The issuers whose identities this node accepts, as configured by the operator. Pure values.

An issuer is found by the exact text of `iss` (or one of its aliases), or by the domain of the
identity provider. An issuer that is not configured is never accepted and never queried.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from msgnode.core.identity import Identity

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519", "EdDSA"),
)
"""Signature algorithms of issuers; none with a shared secret, for which a public key could pass."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """One issuer. Keys come from `jwks` (pasted), else `jwks_url`, else its discovery document.

    url         the text of `iss`; `aliases` are other spellings of it
    domains     `identity.idp.domain` of its identities; the first one is used by the node
    audiences   client ids; empty for the embedded provider, which has its own
    name_claim  the claim that names its users, besides a verified e-mail address and `sub`
    """

    url: str
    aliases: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    audiences: frozenset[str] = frozenset()
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    jwks_url: str = ""
    jwks: str = ""
    introspection_url: str = ""
    client_id: str = ""
    client_secret: str = ""
    is_embedded: bool = False
    name_claim: str = ""

    @property
    def all_domains(self) -> tuple[str, ...]:
        """The domains of its users; the host of its URL if none is configured."""
        return self.domains or ((urlsplit(self.url).hostname or self.url).lower(),)

    @property
    def introspects(self) -> bool:
        """Whether it supports introspection of opaque tokens."""
        return self.is_embedded or bool(self.introspection_url)

    def names_still(self, identity: Identity) -> bool:
        """Whether it vouches for an identity's names as it did when they were read.

        The rule by which an identity of an earlier version was named is unknown: it may stand if
        it has no name but its subject's.
        """
        if identity.name_claim is None:
            return self.is_embedded or identity.username == identity.user_url
        return identity.name_claim == self.name_claim


class IssuerBook:
    """The enabled issuers, for look-ups by name and by domain."""

    def __init__(self, issuers: Iterable[Issuer] = ()) -> None:
        self.all = tuple(issuers)
        self._by_name = {
            name: each for each in reversed(self.all) for name in (*each.aliases, each.url)
        }
        self._by_domain = {
            domain: each for each in reversed(self.all) for domain in each.all_domains
        }

    def named(self, iss: object) -> Issuer | None:
        """The issuer of a token's `iss`."""
        return self._by_name.get(iss) if isinstance(iss, str) else None

    def of_domain(self, domain: str) -> Issuer | None:
        """The issuer behind an identity provider's domain."""
        return self._by_domain.get(domain)

    @property
    def embedded(self) -> Issuer | None:
        """The node's own provider."""
        return next((each for each in self.all if each.is_embedded), None)
