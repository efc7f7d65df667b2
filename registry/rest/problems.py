"""Errors of /api/v1 as problem details (RFC 9457): one shape, and a page for each kind.

`type` is the address of a page of this node that says what the problem means and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.utils.html import format_html
from django.views.decorators.csrf import csrf_exempt
from rest_framework import exceptions
from rest_framework.response import Response

from msgnode.core.errors import NodeError

CONTENT_TYPE = "application/problem+json"

PAGES: Mapping[int, tuple[str, str, str]] = {
    400: ("bad-request", "The request cannot be read", "Correct what `detail` or `errors` name."),
    401: ("not-identified", "Authentication required", "Send the credentials of an account."),
    403: ("forbidden", "This client may not do this", "Ask the operator for the permission."),
    404: ("not-found", "Not found", "Check the id; ended entries are purged."),
    405: ("method-not-allowed", "The resource has no such method", "See `Allow`."),
    406: ("not-acceptable", "There is no such representation", "Accept application/json."),
    409: ("conflict", "The state does not allow it", "Read the resource again and decide anew."),
    410: ("gone", "It has ended for good", "Nothing can be done; the owner has ended it."),
    412: ("changed", "It is not as the request says", "Read it again and decide anew."),
    415: ("unsupported-media-type", "The body is of a kind not read here", "Send JSON."),
    429: ("too-many", "A limit is reached", "Wait as long as `Retry-After` says."),
    500: ("internal", "The node has a fault", "Tell the operator; the cause is in the log."),
    503: ("unavailable", "The node cannot answer now", "Try again later."),
    504: ("timeout", "A back-end did not answer in time", "Try again later."),
}


def handle(error: Exception, context: dict[str, Any]) -> Response | None:
    """The exception handler of every view of /api/v1."""
    if isinstance(error, NodeError):
        return problem(error.code, error.description)
    if isinstance(error, Http404):
        error = exceptions.NotFound()
    if not isinstance(error, exceptions.APIException):
        return None
    if isinstance(error, exceptions.ValidationError):
        response = problem(400, "Some values cannot be accepted.", errors=error.detail)
    else:
        response = problem(error.status_code, str(error.detail))
    if header := getattr(error, "auth_header", None):
        response["WWW-Authenticate"] = header
    if wait := getattr(error, "wait", None):
        response["Retry-After"] = str(max(1, round(wait)))
    return response


def problem(code: int, detail: str, **more: Any) -> Response:
    """One problem."""
    slug, title, _ = PAGES.get(code) or ("other", HTTPStatus(code).phrase, "")
    link = reverse("registry-problem", args=[slug])
    fields = {"type": link, "title": title, "status": code, "detail": detail, **more}
    return Response(fields, status=code, content_type=CONTENT_TYPE)


@csrf_exempt
def nothing(request: HttpRequest, path: str) -> HttpResponse:
    """Any other address below /api/v1."""
    answer = problem(404, "There is nothing at this address.")
    return JsonResponse(answer.data, status=404, content_type=CONTENT_TYPE)


def page(request: HttpRequest, slug: str) -> HttpResponse:
    """The page a `type` points to."""
    for code, (name, title, advice) in PAGES.items():
        if name == slug:
            return HttpResponse(
                format_html(
                    "<!doctype html><html lang=en><meta charset=utf-8><title>{1}</title>"
                    "<h1>{0} · {1}</h1><p>{2}</p></html>",
                    code, title, advice,
                )
            )  # fmt: skip
    raise Http404
