"""The provider's pages and endpoints where they are more than django-oauth-toolkit's.

Discovery, keys and token information may be read by every origin; the token, user-info and
revocation endpoints by the origins of registered clients (they use no cookies).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from oauth2_provider import views as toolkit
from oauth2_provider.exceptions import (
    InvalidOIDCClientError,
    InvalidOIDCRedirectURIError,
    OAuthToolkitError,
)
from oauth2_provider.models import get_application_model

from msgnode.identity.revocation_list import revoke

from . import keys, validator
from .grants import claims_of_token
from .login import leads_on, origin_of_client
from .revocation import end_logins, told_of
from .token_claims import as_text, subject_of, verified_claims

Answer = Callable[..., HttpResponse]
_MAX_TOKEN = 16 * 1024


class Authorization(toolkit.AuthorizationView):
    """Asks the user for consent, where nothing forbids to ask."""

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Ask for consent or lead back with a code; refuse what is not supported at the client."""
        error = _not_supported(request) or self._other_user()
        if not error:
            return super().get(request, *args, **kwargs)
        try:
            _, asked = self.validate_authorization_request(request)
        except OAuthToolkitError as fault:
            return self.error_response(fault, application=None)
        application = get_application_model().objects.get(client_id=asked["client_id"])
        return self._refused(error, asked["redirect_uri"], asked.get("state"), application)

    def form_invalid(self, form: Any) -> HttpResponse:
        """Refuse a consent that does not name what it is for."""
        text = "The request is incomplete. Go back to the application and try again."
        return render(self.request, self.template_name, {"error": {"error": text}}, status=400)

    def redirect(self, redirect_to: str, application: Any) -> Any:
        """Every answer, errors included, names the issuer (RFC 9207)."""
        issuer = settings.PROVIDER["ISSUER"]
        return super().redirect(validator.with_answer(redirect_to, iss=issuer), application)

    def _refused(self, error: str, back: str, state: str | None, application: Any) -> Any:
        return self.redirect(
            validator.with_answer(back, error=error, state=state or ""), application
        )

    def _other_user(self) -> str:
        """The error if the client means another user than who is logged in."""
        hint = self.request.GET.get("id_token_hint", "")
        claims = verified_claims(hint) if 0 < len(hint) <= _MAX_TOKEN else None
        if claims is None or claims.get("sub") == subject_of(self.request.user):
            return ""
        return "login_required"

    def render_to_response(self, context: dict[str, Any], **kwargs: Any) -> Any:
        """The consent page, or `consent_required` to a client that wants no page."""
        back = context.get("redirect_uri")
        if back and "none" in self.request.GET.get("prompt", "").split() and not kwargs:
            application = context["application"]
            return self._refused("consent_required", back, context.get("state"), application)
        response = super().render_to_response(context, **kwargs)
        client_id = context.get("client_id", "")
        return leads_on(response, origin_of_client(client_id or "", back or ""))


_UNSUPPORTED = {
    "request": "request_not_supported",
    "request_uri": "request_uri_not_supported",
    "registration": "registration_not_supported",
}


def _not_supported(request: HttpRequest) -> str:
    """The error for what discovery says is not there (OpenID Connect Core, 3.1.2.6)."""
    if request.GET.get("response_mode", "query") != "query":
        return "invalid_request"
    if not all(map(validator.is_url, request.GET.getlist("resource"))):
        return "invalid_target"
    return next((error for name, error in _UNSUPPORTED.items() if name in request.GET), "")


class Discovery(toolkit.ConnectDiscoveryInfoView):
    """What there is, and nothing that is not: RS256, S256, the code flow."""

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """The toolkit's document, with what this provider does and does not support."""
        response = super().get(request, *args, **kwargs)
        said = json.loads(response.content)
        base = settings.PUBLIC_URL  # as of the toolkit's own endpoints
        said |= {
            "id_token_signing_alg_values_supported": [keys.ALGORITHM],
            "code_challenge_methods_supported": ["S256"],
            "grant_types_supported": settings.OAUTH2_PROVIDER["OAUTH2_GRANT_TYPES_SUPPORTED"],
            "response_modes_supported": ["query"],
            "claims_parameter_supported": False,
            "request_parameter_supported": False,
            "request_uri_parameter_supported": False,
            "claims_supported": sorted(set(said["claims_supported"])),
            "revocation_endpoint": base + reverse("oauth2_provider:revoke-token"),
            "introspection_endpoint": base + reverse("oauth2_provider:introspect"),
            "tokeninfo_endpoint": base + reverse("oauth2_provider:token-info"),
        }
        return for_all(JsonResponse(said))


class Token(toolkit.TokenView):
    """The grants that discovery names and no other; the toolkit has one for devices, too."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Refuse kinds of grant that are not switched on; give tokens for the others."""
        grant = request.POST.get("grant_type")
        if grant and grant not in settings.OAUTH2_PROVIDER["OAUTH2_GRANT_TYPES_SUPPORTED"]:
            return JsonResponse({"error": "unsupported_grant_type"}, status=400)
        response = super().post(request, *args, **kwargs)
        response["Content-Type"] = "application/json"  # also of an error while it was saved
        response["Cache-Control"] = "no-store"
        return response


class Revoke(toolkit.RevokeTokenView):
    """RFC 7009; sessions that were bound by the token are told."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Revoke a token, and tell the workers in the same transaction."""
        with transaction.atomic():
            said = told_of(request.POST.get("token", ""))
            response = super().post(request, *args, **kwargs)
            if response.status_code == HTTPStatus.OK and said:
                revoke(**said)
        return response


class Introspection(toolkit.IntrospectTokenView):
    """Calls no token active that the node itself does not take, such as of a user switched off."""

    @staticmethod
    def get_token_response(token_value: str | None = None) -> HttpResponse:
        """What is said of a token."""
        if token_value and claims_of_token(token_value) is None:
            return JsonResponse({"active": False})
        return toolkit.IntrospectTokenView.get_token_response(token_value)


class UserInfo(toolkit.UserInfoView):
    """Takes tokens in the header only: a URL ends up in logs and histories."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Refuse a token in the URL, where logs and histories would keep it."""
        if "access_token" in request.GET:
            text = "Send the token in the header Authorization."
            error = {"error": "invalid_request", "error_description": text}
            return JsonResponse(error, status=400)
        return super().dispatch(request, *args, **kwargs)


class Logout(toolkit.RPInitiatedLogoutView):
    """RP-initiated log-out: the browser's log-in, its user's tokens and what they had bound."""

    def validate_post_logout_redirect_uri(self, application: Any, uri: str | None) -> Any:
        """Refuse a URI that the client has not registered as it stands."""
        registered = application.post_logout_redirect_uris.split() if application else ()
        if uri and application and not validator.is_registered(uri, registered):
            raise InvalidOIDCRedirectURIError("This client has not registered this redirect URI.")
        super().validate_post_logout_redirect_uri(application, uri)

    def get_request_application(self, id_token: Any, client_id: str | None) -> Any:
        """Refuse a client that does not exist, before its name is used."""
        if client_id and not get_application_model().objects.filter(client_id=client_id).exists():
            raise InvalidOIDCClientError
        return super().get_request_application(id_token, client_id)

    def do_logout(
        self,
        application: Any = None,
        post_logout_redirect_uri: str | None = None,
        state: str | None = None,
        token_user: Any = None,
    ) -> Any:
        """Log out of the browser and end its user's tokens; their sessions go on as anonymous.

        Whose identity token was given does not count: users send theirs to their peers.
        """
        user = self.request.user
        if user.is_authenticated:
            end_logins(user, close=False)
        return super().do_logout(application, post_logout_redirect_uri, state)


def done(request: HttpRequest) -> HttpResponse:
    """Where a log-in ends that a runtime began: its address, with the code, is the grant."""
    return render(request, "access/done.html", {"failed": "error" in request.GET})


class Keys(View):
    """`.well-known/jwks.json`."""

    http_method_names = ["get", "head", "options"]  # noqa: RUF012

    def get(self, request: HttpRequest) -> HttpResponse:
        """The public keys, for pages of any origin, with how long they may be cached."""
        response = JsonResponse(keys.jwk_set())
        age = settings.OAUTH2_PROVIDER["OIDC_JWKS_MAX_AGE_SECONDS"]
        response["Cache-Control"] = f"public, max-age={age}"
        return for_all(response)


@method_decorator(csrf_exempt, name="dispatch")  # reads only, and no cookie
class TokenInfo(View):
    """`tokeninfo?id_token=…`: the claims of a valid token of ours, every value as text.

    That is the form that identity proxies put into assertions. It proves nothing: verify the token.
    """

    http_method_names = ["get", "post", "options"]  # noqa: RUF012

    def get(self, request: HttpRequest) -> HttpResponse:
        """What a token says, given in the query."""
        return self._told(request.GET.get("id_token", ""))

    def post(self, request: HttpRequest) -> HttpResponse:
        """What a token says, given in a form, which no log keeps."""
        return self._told(request.POST.get("id_token", ""))

    def _told(self, token: str) -> HttpResponse:
        claims = verified_claims(token) if 0 < len(token) <= _MAX_TOKEN else None
        if claims is None:
            error = {"error": "invalid_token", "error_description": "Invalid Value"}
            return for_all(JsonResponse(error, status=400))
        return for_all(JsonResponse({name: as_text(value) for name, value in claims.items()}))


def for_all(response: HttpResponse) -> HttpResponse:
    """Readable from every origin; never with credentials."""
    response["Access-Control-Allow-Origin"] = "*"
    return response


def for_clients(view: Answer) -> Answer:
    """Readable from the origins of registered clients, preflight included."""

    @csrf_exempt
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        origin = request.headers.get("Origin", "")
        is_asked_first = request.method == "OPTIONS"
        response = HttpResponse(status=204) if is_asked_first else view(request, *args, **kwargs)
        response["Vary"] = "Origin"
        if origin and _is_of_a_client(origin):
            response["Access-Control-Allow-Origin"] = origin
            if is_asked_first:
                response["Access-Control-Allow-Methods"] = "GET, POST"
                response["Access-Control-Allow-Headers"] = "Authorization, Content-Type"
                response["Access-Control-Max-Age"] = "600"
        return response

    return answer


def _is_of_a_client(origin: str) -> bool:
    for allowed, registered in get_application_model().objects.values_list(
        "allowed_origins", "redirect_uris"
    ):
        if origin in allowed.split():
            return True
        parts = (urlsplit(uri) for uri in registered.split())
        if any(origin == f"{part.scheme}://{part.netloc}" for part in parts):
            return True
    return False
