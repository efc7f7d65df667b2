"""The rows of issuers, read into the values of this package. Blocks: for threads."""

from __future__ import annotations

from django.db import connection

from msgnode import models

from . import revocation_list
from .encryption import decrypt
from .issuers import Issuer, IssuerBook
from .revocation_list import Revocations

EMBEDDED = "This node"


def load() -> tuple[IssuerBook, Revocations]:
    """The enabled issuers and the revocations; for a thread that does nothing else."""
    try:
        return read()
    finally:
        connection.close()


def read() -> tuple[IssuerBook, Revocations]:
    """As `load`, in a thread that keeps its connection."""
    rows = models.Issuer.objects.filter(is_enabled=True)
    return IssuerBook(map(issuer_of, rows)), revocation_list.load()


def issuer_of(row: models.Issuer) -> Issuer:
    """A row as a value."""
    is_embedded = row.kind == models.Issuer.Kind.EMBEDDED
    return Issuer(
        url=row.url,
        aliases=lines(row.aliases),
        domains=tuple(each.lower() for each in lines(row.domains)),
        audiences=frozenset(lines(row.audiences)),
        algorithms=lines(row.algorithms),
        jwks_url=row.jwks_url,
        jwks=row.jwks.strip(),
        introspection_url=row.introspection_url,
        client_id=row.client_id,
        client_secret=decrypt(row.client_secret),
        is_embedded=is_embedded,
        name_claim="preferred_username" if is_embedded else row.name_claim,
    )


def enter_embedded(url: str, domain: str) -> None:
    """Ensure that the node's own provider is among the issuers, with its current URL."""
    models.Issuer.objects.get_or_create(
        kind=models.Issuer.Kind.EMBEDDED,
        defaults={"name": EMBEDDED, "url": url, "domains": domain, "algorithms": "RS256"},
    )
    models.Issuer.objects.filter(kind=models.Issuer.Kind.EMBEDDED).exclude(url=url).update(url=url)


def lines(text: str) -> tuple[str, ...]:
    """The entries of a list with one per line."""
    return tuple(each for line in text.splitlines() if (each := line.strip()))
