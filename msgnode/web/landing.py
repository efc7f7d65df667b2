"""`/`: the page that explains the node to a newcomer and runs a live example in the browser."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.templatetags.static import static
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe


@require_safe
def favicon(request: HttpRequest) -> HttpResponse:
    """Where browsers look for an icon that no page names."""
    return redirect(static("msgnode/landing/icon.svg"))


@never_cache
@require_safe
def landing(request: HttpRequest) -> HttpResponse:
    """The page, under a policy that lets it talk to this node and to nobody else."""
    secure = "s" if request.is_secure() else ""
    host = request.get_host()
    sockets = f"ws{secure}://{host}"
    facts = {"domain": settings.DOMAIN, "http": f"http{secure}://{host}", "sockets": sockets}
    response = render(request, "landing.html", facts)
    response["Content-Security-Policy"] = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        f"connect-src 'self' {sockets}; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return response
