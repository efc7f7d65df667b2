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

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse

from msgnode.core.rates import VISITS, Key
from msgnode.web.proxies import address_of

Answer = Callable[..., HttpResponse]

_WINDOW = 60
_OF_ADDRESS = 4
_MAX_NAME = 100
_GUESSES = frozenset({"invalid_client", "invalid_grant"})


def throttled(view: Answer) -> Answer:
    """A view of the provider, for those who have not failed too often."""

    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        keys = _keys(request)
        limit: int = settings.PROVIDER["FAILURES_PER_MINUTE"]
        limits = (limit, _OF_ADDRESS * limit)
        if any(VISITS.count(key, _WINDOW) >= most for key, most in zip(keys, limits, strict=True)):
            return _refusal()
        response = view(request, *args, **kwargs)
        if _was_wrong(response):
            for key in keys:
                VISITS.note(key, _WINDOW)
        return response

    answer.csrf_exempt = True  # type: ignore[attr-defined]  # clients have no cookie
    return answer


def _keys(request: HttpRequest) -> tuple[Key, Key]:
    address = address_of(request)
    return ("client", _client(request)[:_MAX_NAME], address), ("clients", address)


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
    response["Retry-After"] = str(_WINDOW)
    response["Cache-Control"] = "no-store"
    return response
