"""Login and logout of the domain's users, with protection against guessing.

django-axes locks a name for the address that guesses its password, and an address has at most
LOGINS_PER_MINUTE attempts for all names together, at all workers. Both answer 429 with Retry-After.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

from axes.helpers import get_cool_off
from csp.constants import SELF
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import Resolver404, resolve
from oauth2_provider.models import get_application_model

from msgnode.core.http_limits import HTTP_LIMITS, WINDOW
from msgnode.web.proxies import source_of_request


class Login(LoginView):
    """`/login/`: name and password, then on to `next`."""

    template_name = "access/login.html"

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Log in, unless too many tries have failed."""
        return too_many_tries(request) or super().post(request, *args, **kwargs)

    def render_to_response(self, context: dict[str, Any], **kwargs: Any) -> Any:
        """The form, whose answer may lead on to the client that has asked for the log-in."""
        response = super().render_to_response(context, **kwargs)
        return leads_on(response, origin_asked_for(self.get_redirect_url()))


def console_login(request: HttpRequest) -> HttpResponse:
    """`/admin/login/`: the same brakes for operators."""
    refusal = too_many_tries(request) if request.method == "POST" else None
    return refusal or admin.site.login(request)


def too_many_tries(request: HttpRequest) -> HttpResponse | None:
    """The refusal, if this address has tried too often within a minute."""
    if not HTTP_LIMITS.take("login", source_of_request(request), settings.LOGINS_PER_MINUTE):
        return None
    return _refusal(request, WINDOW)


def locked_out(request: HttpRequest, *_: Any) -> HttpResponse:
    """The answer of django-axes (setting AXES_LOCKOUT_CALLABLE)."""
    cool_off = get_cool_off(request)
    return _refusal(request, int(cool_off.total_seconds()) if cool_off else 0)


def _refusal(request: HttpRequest, seconds: int) -> HttpResponse:
    text = "Too many failed log-ins. Wait a while, or ask the operator."
    response: HttpResponse
    if "text/html" in request.headers.get("Accept", ""):
        response = render(request, "access/refused.html", {"text": text}, status=429)
    else:
        problem = {"type": "about:blank", "title": "Too many", "status": 429, "detail": text}
        response = JsonResponse(problem, status=429, content_type="application/problem+json")
    response["Retry-After"] = str(seconds)
    return response


def leads_on(response: Any, origin: str) -> Any:
    """Let the forms of a page lead to another origin.

    Browsers hold the policy of a form's page against every redirect that follows it.
    """
    if origin:
        response._csp_replace = {"form-action": [SELF, origin]}
    return response


def origin_asked_for(next_url: str) -> str:
    """The origin of the registered client to which an authorisation request leads in the end."""
    parts = urlsplit(next_url)
    try:
        if resolve(parts.path).view_name != "oauth2_provider:authorize":
            return ""
    except Resolver404:
        return ""
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    return origin_of_client(query.get("client_id", ""), query.get("redirect_uri", ""))


def origin_of_client(client_id: str, redirect_uri: str) -> str:
    """The origin of a redirect URI, if it is one of the client's; else nothing."""
    if "\x00" in client_id:
        return ""
    client = get_application_model().objects.filter(client_id=client_id).first()
    if client is None or redirect_uri not in client.redirect_uris.split():
        return ""
    parts = urlsplit(redirect_uri)
    return f"{parts.scheme}://{parts.netloc}"
