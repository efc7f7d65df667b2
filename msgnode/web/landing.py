"""`/`: the page that explains the node to a newcomer and runs live examples in the browser.

`/runtime` shows what there is in a runtime that connects from the browser, and how it reaches whom.
`?with=<domain>@<origin>` names a second node, for what is between two domains: the page may ask
that origin as well, and nobody else.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.templatetags.static import static
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

_OTHER = re.compile(
    r"(?P<domain>[a-z0-9]([a-z0-9._-]{0,252})(:[0-9]{1,5})?)"
    r"@(?P<origin>https?://[a-z0-9]([a-z0-9.-]{0,252})(:[0-9]{1,5})?)/?"
)


class OtherNode(NamedTuple):
    """The node that a visitor has named."""

    domain: str
    origin: str


@require_safe
def favicon(request: HttpRequest) -> HttpResponse:
    """Where browsers look for an icon that no page names."""
    return redirect(static("msgnode/landing/icon.svg"))


@never_cache
@require_safe
def landing(request: HttpRequest) -> HttpResponse:
    """The page with its examples."""
    return _page(request, "landing.html")


@never_cache
@require_safe
def runtime(request: HttpRequest) -> HttpResponse:
    """The page that shows a runtime."""
    return _page(request, "runtime.html")


def _page(request: HttpRequest, template: str) -> HttpResponse:
    """A page, under a policy that lets it talk to this node, and to one that the URL names."""
    secure = "s" if request.is_secure() else ""
    host = request.get_host()
    sockets = f"ws{secure}://{host}"
    other = _other(request)
    facts = {"domain": settings.DOMAIN, "http": f"http{secure}://{host}", "sockets": sockets}
    shown = {**facts, "other": other, "invites": settings.INVITATIONS["ON"]}
    response = render(request, template, shown)
    asked = f"'self' {sockets} {other.origin}" if other else f"'self' {sockets}"
    response["Content-Security-Policy"] = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        f"connect-src {asked}; frame-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    response["Permissions-Policy"] = (  # as on all pages, but for the microphone
        "camera=(), geolocation=(), microphone=(self), payment=(), usb=()"
    )
    return response


def _other(request: HttpRequest) -> OtherNode | None:
    named = _OTHER.fullmatch(request.GET.get("with", "").strip().lower())
    return OtherNode(named["domain"], named["origin"]) if named else None
