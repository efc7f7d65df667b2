"""The OAuth clients that the node itself has.

`newcomer` is its own page, which shows what logging in does; `idm` its identity connector, which
logs runtimes in that have no page. Both are public and use PKCE; nobody is asked for consent, since
client and provider are one. They have no secret, and none is hashed, which would take half a second
of a node's first start. They are written down when a worker starts, because their redirects
depend on where the node is reached.

Other clients may have a secret, which is stored hashed. After a rotation the former one works for
OVERLAP, so that a client can be changed without a gap.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone
from oauth2_provider.generators import generate_client_secret
from oauth2_provider.models import get_application_model

from msgnode.models import FormerClientSecret

from .grants import CONNECTOR, returns_to
from .token_claims import CARD_AUDIENCE

OWN_PAGE = "newcomer"
OVERLAP = timedelta(hours=24)


def ensure_own_clients() -> None:
    """Write the rows that are not there or are other ones. Idempotent."""
    pages = " ".join(f"{origin}/" for origin in own_origins())
    _ensure(OWN_PAGE, "The node's own page", pages)
    _ensure(CONNECTOR, "The node's identity connector", returns_to())


def _ensure(client_id: str, name: str, redirects: str) -> None:
    wanted = {
        "name": name,
        "client_type": "public",
        "authorization_grant_type": "authorization-code",
        "client_secret": "",
        "hash_client_secret": False,
        "redirect_uris": redirects,
        "post_logout_redirect_uris": redirects,
        "skip_authorization": True,
        "algorithm": "RS256",
    }
    clients = get_application_model().objects
    if not clients.filter(client_id=client_id, redirect_uris=redirects).exists():
        clients.update_or_create(client_id=client_id, defaults=wanted)


def own_origins() -> list[str]:
    """Where the page may be: the public URL, and on a development node the loopback by any name."""
    origins = [settings.PUBLIC_URL]
    if settings.NODE_MODE == "embedded":
        origins += [f"http://{host}:{settings.PORT}" for host in ("localhost", "127.0.0.1")]
    return list(dict.fromkeys(origins))


def audiences() -> list[str]:
    """The client ids that tokens of the embedded provider are for.

    A client named as the cards' audience is none: whoever fetched a card could be its user.
    """
    clients = get_application_model().objects.exclude(client_id=CARD_AUDIENCE)
    return list(clients.values_list("client_id", flat=True))


def rotate_secret(client: Any) -> str:
    """Give a confidential client a new secret; its present one works until OVERLAP has passed."""
    former = {"secret_hash": client.client_secret, "valid_until": timezone.now() + OVERLAP}
    FormerClientSecret.objects.update_or_create(client=client, defaults=former)
    text: str = generate_client_secret()
    client.client_secret = text  # hashed when it is saved
    client.save(update_fields=["client_secret", "updated"])
    return text
