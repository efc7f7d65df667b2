"""Login and logout of the domain's users, with protection against guessing.

django-axes locks a name for the address that guesses its password, and an address has at most
LOGINS_PER_MINUTE attempts for all names together, at all workers. Both answer 429 with Retry-After.

Who has a second factor, or a role that asks for one, is not logged in by the password: for MINUTES
the browser's session remembers who has shown it, and the address `second-factor` asks for the rest.
Every log-in of a browser ends in `enter`, which notes what the lists of log-ins show.
"""

from __future__ import annotations

from hmac import compare_digest
from time import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

from axes.helpers import get_cool_off
from csp.constants import SELF
from django.conf import settings
from django.contrib.auth import get_user_model, login
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.urls import Resolver404, resolve, reverse
from oauth2_provider.models import get_application_model

from msgnode.core.http_limits import HTTP_LIMITS, WINDOW
from msgnode.identity import second_factor
from msgnode.models import OperatorIdentity
from msgnode.web.proxies import address_of, source_of_request

PENDING, LOG_IN = "log_in_pending", "log_in"
CONFIRMED, SECOND_FACTOR = "confirmed_at", "second_factor_at"
"""Keys of a browser's session: when its user proved to be there, and when by a second factor."""
MINUTES = 5
RECENT_MINUTES = 10
_BACKEND = "django.contrib.auth.backends.ModelBackend"


class Login(LoginView):
    """`/login/`: name and password, then on to `next`."""

    template_name = "access/login.html"

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Log in, unless too many tries have failed."""
        return too_many_tries(request) or super().post(request, *args, **kwargs)

    def form_valid(self, form: Any) -> HttpResponse:
        """Log in, or go on to the second factor."""
        user = form.get_user()
        identity = OperatorIdentity.objects.filter(user=user).select_related("issuer").first()
        if identity is not None:
            form.add_error(None, f"This account logs in with {identity.issuer}.")
            return self.form_invalid(form)
        return let_in(self.request, user, self.get_success_url(), "password")

    def render_to_response(self, context: dict[str, Any], **kwargs: Any) -> Any:
        """The form, whose answer may lead on to the client that has asked for the log-in."""
        response = super().render_to_response(context, **kwargs)
        return leads_on(response, origin_asked_for(self.get_redirect_url()))


def let_in(
    request: HttpRequest, user: Any, next_url: str, by: str, *, is_strong: bool = False
) -> HttpResponse:
    """Log in who has shown one factor, or ask for the second one.

    Args:
        request: of the browser.
        user: who.
        next_url: where to go then; of this node.
        by: what was shown, for the lists of log-ins.
        is_strong: whether that was more than one factor.
    """
    if is_strong or not second_factor.is_asked(user):
        return enter(request, user, next_url, by, is_strong=is_strong)
    request.session.cycle_key()
    request.session[PENDING] = {
        "user": user.pk,
        "hash": user.get_session_auth_hash(),
        "at": time(),
        "by": by,
        "next": next_url,
    }
    return HttpResponseRedirect(reverse("second-factor"))


def pending(request: HttpRequest) -> tuple[Any, dict[str, Any]] | None:
    """Who has shown one factor in this browser, and what was noted then."""
    said = request.session.get(PENDING)
    if not said or not 0 <= time() - said["at"] <= MINUTES * 60:
        return None
    user = get_user_model().objects.filter(pk=said["user"], is_active=True).first()
    if user is None or not compare_digest(user.get_session_auth_hash(), said["hash"]):
        return None
    return user, said


def enter(
    request: HttpRequest, user: Any, next_url: str, by: str, *, is_strong: bool
) -> HttpResponse:
    """Log in who has shown all that is asked."""
    request.log_in_by = by  # type: ignore[attr-defined]  # for the audit
    login(request, user, backend=_BACKEND)
    session = request.session
    session.pop(PENDING, None)
    agent = request.headers.get("User-Agent", "")
    session[LOG_IN] = {"at": time(), "from": address_of(request), "browser": agent[:200], "by": by}
    session.pop(SECOND_FACTOR, None)
    has_proved(request, by_factor=is_strong)
    return HttpResponseRedirect(next_url)


def has_proved(request: HttpRequest, *, by_factor: bool) -> None:
    """Note that the user of this browser is there, and whether a second factor has shown it."""
    request.session[CONFIRMED] = time()
    if by_factor:
        request.session[SECOND_FACTOR] = time()


def is_recent(request: HttpRequest, what: str) -> bool:
    """Whether CONFIRMED or SECOND_FACTOR was in the last RECENT_MINUTES."""
    at = request.session.get(what)
    return isinstance(at, float) and 0 <= time() - at <= RECENT_MINUTES * 60


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
