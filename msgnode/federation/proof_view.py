"""`/.well-known/messaging-node/<domain>/<digest>`: which connections to a domain are this node's.

204 if a secret of this digest is what this node says when it connects there (node_proofs.py), else
404. Any worker answers, and the web process.
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
    """Say whether it is ours."""
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    is_ours = settings.FEDERATION != "off" and node_proofs.is_own(
        keys, settings.DOMAIN, domain, digest
    )
    return HttpResponse(status=204 if is_ours else 404)
