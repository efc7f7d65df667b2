"""Cards over HTTP, so that a caller has one before any code of the callee's domain runs.

/.well-known/webfinger?resource=acct:bob@<domain>     (RFC 7033) links to the stub and to the card
/.well-known/contact-card?resource=acct:bob@<domain>  the card, a JWT

Readable from every origin. Whoever has no card is answered as somebody who does not exist, and an
address asks at most so often a minute: the users of a domain cannot be counted through here.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views import View

from msgnode.core.http_limits import HTTP_LIMITS
from msgnode.web.proxies import source_of_request

from .cards import MAX_NAME, card_of, protostub
from .views import for_all

CARD_PATH = ".well-known/contact-card"
CARDS_PER_MINUTE = 60
"""For one address: more than a person calls, and too few to find out which users there are."""


class CardView(View):
    """What both addresses share."""

    http_method_names = ["get", "head", "options"]  # noqa: RUF012

    def get(self, request: HttpRequest) -> HttpResponse:
        """The card of `resource`: 429 for who asks too often, 404 if there is none."""
        wait = HTTP_LIMITS.take("cards", source_of_request(request), CARDS_PER_MINUTE)
        if wait:
            answer: HttpResponse = _error(HTTPStatus.TOO_MANY_REQUESTS, "Too many questions.")
            answer["Retry-After"] = str(int(wait) + 1)
        elif not 0 < len(resource := request.GET.get("resource", "")) <= MAX_NAME:
            answer = _error(HTTPStatus.BAD_REQUEST, "`resource` names nobody.")
        elif (card := card_of(resource)) is None:
            answer = _error(HTTPStatus.NOT_FOUND, "There is no card of that name.")
        else:
            answer = self.shown(resource, card)
        answer["Cache-Control"] = "no-store"
        return for_all(answer)

    def shown(self, resource: str, card: dict[str, Any]) -> HttpResponse:
        """The card itself."""
        return HttpResponse(card["assertion"], content_type="application/jwt")


class WebFinger(CardView):
    """Links to what reaches somebody."""

    def shown(self, resource: str, card: dict[str, Any]) -> HttpResponse:
        """The links."""
        href = f"{settings.PUBLIC_URL}/{CARD_PATH}?resource={quote(resource, safe='')}"
        links = [
            {"rel": "protocolstub", "href": protostub()},
            {"rel": "contact-card", "type": "application/jwt", "href": href},
        ]
        said = {"subject": resource, "aliases": [card["userURL"]], "links": links}
        return JsonResponse(said, content_type="application/jrd+json")


def _error(status: HTTPStatus, text: str) -> HttpResponse:
    return JsonResponse({"error": status.phrase, "error_description": text}, status=status)
