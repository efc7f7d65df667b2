"""`/.well-known/messaging-node/<domain>/<digest>`: confirms this node's connections to a domain.

204 if it is the digest of the secret that this node sends when it connects there (node_proofs.py),
else 404. Any worker answers, and the web process.
"""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from . import node_proofs


@require_safe
@never_cache
def own_connection(request: HttpRequest, domain: str, digest: str) -> HttpResponse:
    """Whether the connection with this secret is this node's."""
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    is_ours = settings.FEDERATION != "off" and node_proofs.is_own(
        keys, settings.DOMAIN, domain, digest
    )
    return HttpResponse(status=204 if is_ours else 404)
