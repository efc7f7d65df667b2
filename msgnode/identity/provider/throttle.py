"""Rate limit of failed attempts at the provider's endpoints: client secrets, codes, refresh tokens.

Failures are counted by client and source address, for all clients together by address alone (four
times as many), at all workers. Who has failed too often within a minute is answered 429 with
Retry-After, whatever is sent: the answer must not tell a right guess from a wrong one. A client
elsewhere, and another client from the same address, are served.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from django.http import HttpRequest, HttpResponse, JsonResponse

from msgnode.core.http_limits import HTTP_LIMITS, WINDOW
from msgnode.web.proxies import source_of_request

Answer = Callable[..., HttpResponse]

FAILURES_PER_MINUTE = 20
"""Of one client from one address: who has an old secret may retry, who guesses gets nowhere."""
_OF_ADDRESS = 4
_MAX_NAME = 100
_GUESSES = frozenset({"invalid_client", "invalid_grant"})


def throttled(view: Answer) -> Answer:
    """A view of the provider, for those who have not failed too often."""

    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        limits = _limits(request)
        if any(HTTP_LIMITS.is_spent(*limit) for limit in limits):
            return _refusal()
        response = view(request, *args, **kwargs)
        if _was_wrong(response):
            for limit in limits:
                HTTP_LIMITS.take(*limit)
        return response

    answer.csrf_exempt = True  # type: ignore[attr-defined]  # clients have no cookie
    return answer


def _limits(request: HttpRequest) -> tuple[tuple[str, str, int], ...]:
    """What counts a failure of this request: kind, who, and how many there may be in a minute."""
    address = source_of_request(request)
    return (
        ("client", f"{address} {_client(request)[:_MAX_NAME]}", FAILURES_PER_MINUTE),
        ("clients", address, _OF_ADDRESS * FAILURES_PER_MINUTE),
    )


def _client(request: HttpRequest) -> str:
    """The client a request claims to come from, by its header or its form."""
    kind, _, given = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() == "basic":
        try:
            name = base64.b64decode(given, validate=True).decode().partition(":")[0]
        except (binascii.Error, UnicodeDecodeError):
            return ""
        return unquote(name)
    return request.POST.get("client_id", "")


def _was_wrong(response: HttpResponse) -> bool:
    if response.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return True
    if response.status_code != HTTPStatus.BAD_REQUEST:
        return False
    try:
        said = json.loads(response.content)
    except ValueError:
        return False
    return isinstance(said, dict) and said.get("error") in _GUESSES


def _refusal() -> HttpResponse:
    text = "Too many requests of this client from this address have failed: wait a minute."
    error = {"error": "slow_down", "error_description": text}
    response = JsonResponse(error, status=HTTPStatus.TOO_MANY_REQUESTS)
    response["Retry-After"] = str(WINDOW)
    response["Cache-Control"] = "no-store"
    return response
