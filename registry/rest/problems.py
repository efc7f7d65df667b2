"""Errors of /api/v1 as problem details (RFC 9457): one format, and a page for each kind.

`type` is the URL of a page of this node that explains the problem and what to do.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.db import DataError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.views.decorators.csrf import csrf_exempt
from rest_framework import exceptions
from rest_framework.response import Response

from msgnode.core.errors import NodeError, unknown_value
from msgnode.core.explanations import ERRORS

CONTENT_TYPE = "application/problem+json"


def handle(error: Exception, context: dict[str, Any]) -> Response | None:
    """The exception handler of every view of /api/v1."""
    if isinstance(error, DataError):  # PostgreSQL's: NUL, a time zone of -23:56
        error = unknown_value(str(error))
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
    known = ERRORS.get(code)
    link = reverse("problem", args=["errors", known.name]) if known else "about:blank"
    title = known.explanation.title if known else HTTPStatus(code).phrase
    fields = {"type": link, "title": title, "status": code, "detail": detail, **more}
    return Response(fields, status=code, content_type=CONTENT_TYPE)


@csrf_exempt
def nothing(request: HttpRequest, path: str) -> HttpResponse:
    """Any other address below /api/v1."""
    answer = problem(404, "There is nothing at this address.")
    return JsonResponse(answer.data, status=404, content_type=CONTENT_TYPE)
