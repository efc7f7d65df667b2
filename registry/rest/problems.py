"""Errors of /api/v1 as problem details (RFC 9457): one format, and a page for each kind.

`type` is the URL of a page of this node that explains the problem and what to do. A database that
is slow, full or away is 503, counted, and never a fault of the node.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.core.exceptions import ValidationError
from django.db import DataError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.views.decorators.csrf import csrf_exempt
from rest_framework import exceptions
from rest_framework.fields import get_error_detail
from rest_framework.response import Response

from msgnode.core import database_errors
from msgnode.core.database_errors import RETRY_AFTER
from msgnode.core.errors import NodeError, Unavailable, unknown_value
from msgnode.core.explanations import ERRORS

CONTENT_TYPE = "application/problem+json"


def of_the_database(error: BaseException | None) -> NodeError | None:
    """What an error of the database is answered; counted where it is the database's doing.

    PostgreSQL takes no NUL in a text and no time zone of -23:56; SQLite takes both.

    Returns:
        None for a fault of the node, and for what is no error of the database.
    """
    if isinstance(error, DataError):
        return unknown_value(str(error))
    if not isinstance(error, OperationalError | InterfaceError) or database_errors.is_fault(error):
        return None
    return database_errors.refusal_for(error)


def handle(error: Exception, context: dict[str, Any]) -> Response | None:
    """The exception handler of every view of /api/v1."""
    response = _answer(of_the_database(error) or error)
    request = context.get("request")
    if response is not None and getattr(request, "accepted_media_type", "") == "text/html":
        response.content_type = None  # a page around it, for who looks with a browser
    return response


def _answer(error: Exception) -> Response | None:
    if isinstance(error, NodeError):
        return problem(error.code, error.description)
    if isinstance(error, Http404):
        error = exceptions.NotFound()
    if isinstance(error, ValidationError):
        error = exceptions.ValidationError(get_error_detail(error))
    if not isinstance(error, exceptions.APIException):
        return None
    if isinstance(error, exceptions.ValidationError):
        response = problem(400, "Some values cannot be accepted.", errors=_by_field(error.detail))
    else:
        response = problem(error.status_code, str(error.detail))
    if header := getattr(error, "auth_header", None):
        response["WWW-Authenticate"] = header
    return to_come_back(response, error)


def problem(code: int, detail: str, **more: Any) -> Response:
    """One problem."""
    known = ERRORS.get(code)
    link = reverse("problem", args=["errors", known.name]) if known else "about:blank"
    title = known.explanation.title if known else HTTPStatus(code).phrase
    fields = {"type": link, "title": title, "status": code, "detail": detail, **more}
    return to_come_back(Response(fields, status=code, content_type=CONTENT_TYPE))


def to_come_back(response: Response, error: Exception | None = None) -> Response:
    """The answer, with when to ask again where that may help: 503, and too many requests."""
    if response.status_code == Unavailable.code:
        response["Retry-After"] = RETRY_AFTER
    if wait := getattr(error, "wait", None):
        response["Retry-After"] = str(max(1, round(wait)))
    return response


def _by_field(detail: Any) -> dict[str, Any]:
    """What is wrong, by the field; what is wrong with the whole under a name of its own."""
    return detail if isinstance(detail, dict) else {"non_field_errors": detail}


@csrf_exempt
def nothing(request: HttpRequest, path: str) -> HttpResponse:
    """Any other address below /api/v1."""
    answer = problem(404, "There is nothing at this address.")
    return JsonResponse(answer.data, status=404, content_type=CONTENT_TYPE)
