"""A request that the database does not serve is answered 503 with what is wrong, not 500.

So is everything over HTTP that has no form of its own for errors: a page for who looks with a
browser, problem details (RFC 9457) for programs, which get a fault of the node in that form, too.
Neither asks the database. A request waits DATABASE_TIMEOUT for one statement.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from django.conf import settings
from django.db import DataError, InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string
from django.urls import reverse
from django.views import defaults

from msgnode.core import database_errors, database_limit
from msgnode.core.errors import InternalFault, NodeError, unknown_value
from msgnode.core.explanations import ERRORS


class DatabaseLimitMiddleware:
    """Limits what a request may wait for the database, and refuses what that does not store."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Serve a request within the limit."""
        with database_limit.at_most(settings.DATABASE_TIMEOUT):
            return self._get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponseBase | None:
        """Answer 400 for a value that PostgreSQL does not store: with a NUL, or too long."""
        if not isinstance(error, DataError):
            return None
        if _is_for_people(request):
            return defaults.bad_request(request, error)
        return _problem(unknown_value(str(error)))


def server_error(request: HttpRequest) -> HttpResponseBase:
    """Django's `handler500`: 503 where the database is what failed, else 500.

    Args:
        request: what could not be served; the error is being handled.
    """
    error = sys.exc_info()[1]
    is_of_it = isinstance(error, OperationalError | InterfaceError)
    is_for_people = _is_for_people(request)
    if error is None or not is_of_it or database_errors.is_fault(error):
        return defaults.server_error(request) if is_for_people else _problem(InternalFault())
    refusal = database_errors.refusal_for(error)
    answer: HttpResponse
    if is_for_people:
        is_read = request.method in ("GET", "HEAD")
        facts = {"what": refusal.description, "here": request.get_full_path() if is_read else ""}
        answer = HttpResponse(render_to_string("503.html", facts), status=refusal.code)
    else:
        answer = _problem(refusal)
    answer["Retry-After"] = database_errors.RETRY_AFTER
    answer["Cache-Control"] = "no-store"
    return answer


def _is_for_people(request: HttpRequest) -> bool:
    return "text/html" in request.headers.get("Accept", "")


def _problem(refusal: NodeError) -> JsonResponse:
    known = ERRORS[refusal.code]
    told = {
        "type": reverse("problem", args=["errors", known.name]),
        "title": known.explanation.title,
        "status": refusal.code,
        "detail": refusal.description,
    }
    return JsonResponse(told, status=refusal.code, content_type="application/problem+json")
