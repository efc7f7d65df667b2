"""/push/<endpoint>: where callers from elsewhere leave an invitation (as RFC 8030, section 5).

POST leaves one:

201 with Location for every invitation that is well-formed, whether or not anybody is there. 404 for
an endpoint that is none, 413 above 4,096 bytes, 415 for what is not JSON, 400 for what is none, 429
with Retry-After above the limits: by the address of the caller, and by the endpoint.

DELETE of what Location named withdraws it: 204, whether or not it had been heard or was withdrawn
before; 404 for one that is none, or has expired.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import quote

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt

from msgnode.core.errors import NodeError, NotFound, TooMany
from msgnode.core.http_limits import HTTP_LIMITS
from msgnode.web.proxies import source_of_request

from . import endpoints, wire

SOURCE_FACTOR = 10
"""A source address may leave this many times as many invitations as one endpoint accepts."""


class TooLarge(NodeError):
    """More than an invitation may have."""

    code = 413
    title = "Too large"


class NoJson(NodeError):
    """The content has another type, or is encrypted."""

    code = 415
    title = "Not JSON"


@method_decorator(csrf_exempt, name="dispatch")  # no cookie says who calls
class PushView(View):
    """One endpoint."""

    http_method_names = ["post", "options"]  # noqa: RUF012

    def post(self, request: HttpRequest, endpoint: str) -> HttpResponse:
        """Leave an invitation."""
        return _answered(lambda: self._leave(request, endpoint))

    def _leave(self, request: HttpRequest, endpoint: str) -> HttpResponse:
        most = _allowed(request)
        if int(request.headers.get("Content-Length") or 0) > wire.MAX_BYTES:
            raise TooLarge(f"An invitation has at most {wire.MAX_BYTES} bytes.")
        is_plain = request.content_type == "application/json"
        if not is_plain or "Content-Encoding" in request.headers:
            raise NoJson("An invitation is posted as application/json, and not encoded.")
        body = request.read(wire.MAX_BYTES + 1)
        if len(body) > wire.MAX_BYTES:
            raise TooLarge(f"An invitation has at most {wire.MAX_BYTES} bytes.")
        seconds = wire.seconds_kept(request.headers.get("TTL", ""))
        invitation = wire.read(body, time.time())
        _take("push", endpoint, most)
        endpoints.leave(endpoint, invitation, seconds)
        answer = HttpResponse(status=201)
        answer["Location"] = f"{endpoints.url_of(endpoint)}/{quote(invitation.name, safe='')}"
        answer["TTL"] = str(seconds)
        return answer


@method_decorator(csrf_exempt, name="dispatch")
class LeftView(View):
    """One invitation that was left."""

    http_method_names = ["delete", "options"]  # noqa: RUF012

    def delete(self, request: HttpRequest, endpoint: str, name: str) -> HttpResponse:
        """Withdraw it."""

        def withdraw() -> HttpResponse:
            _allowed(request)
            endpoints.withdraw(endpoint, name)
            return HttpResponse(status=204)

        return _answered(withdraw)


def _allowed(request: HttpRequest) -> int:
    """How many invitations an endpoint takes a minute. Raises NotFound and TooMany."""
    if not settings.INVITATIONS["ON"]:
        raise NotFound("There is no such endpoint.")
    most: int = settings.INVITATIONS["PER_MINUTE"]
    _take("push-source", source_of_request(request), SOURCE_FACTOR * most)
    return most


def _answered(answer_to: Callable[[], HttpResponse]) -> HttpResponse:
    try:
        answer = answer_to()
    except NodeError as error:
        told = {"code": error.code, "desc": error.description}
        answer = JsonResponse(told, status=error.code)
        if isinstance(error, _Wait):
            answer["Retry-After"] = str(int(error.seconds) + 1)
    answer["Cache-Control"] = "no-store"
    return answer


class _Wait(TooMany):
    def __init__(self, seconds: float) -> None:
        super().__init__("Too many invitations.")
        self.seconds = seconds


def _take(kind: str, who: str, per_minute: int) -> None:
    if wait := HTTP_LIMITS.take(kind, who, per_minute):
        raise _Wait(wait)
