"""The field's global registry over HTTP: GET and PUT /guid/<guid>.

docs/reference/registry.md, section B1.

Every body is `{"Code", "Description", "Explanation", "Value"}` and Code is the HTTP status; the
record travels as plain text. Records are deleted by nobody: their owner revokes them.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from django.http import HttpResponseBase
from rest_framework.exceptions import APIException, MethodNotAllowed, NotAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from msgnode.core.errors import (
    BadMessage,
    NodeError,
    NotFound,
    PreconditionFailed,
    TooMany,
    Unavailable,
)
from msgnode.core.http_limits import HTTP_LIMITS
from registry import api

from . import problems
from .access import RegistryThrottle, who
from .field import RegistryView, error_challenge
from .paths import segments

BASE = "/global-registry"


class GlobalThrottle(RegistryThrottle):
    """Records are proved before they are stored, so each source may send fewer of them."""

    def rate(self, kind: str) -> int:
        """Of writes, the lower of both limits."""
        rate = super().rate(kind)
        is_write = kind == "WRITES"
        return min(rate, api.GLOBAL_WRITES_PER_MINUTE) if is_write else rate

    def counted_as(self, kind: str) -> str:
        """Writes of records by themselves."""
        return f"GLOBAL-{kind}" if kind == "WRITES" else kind


class GlobalRegistryView(RegistryView):
    """One view for the whole tree, routed like the domain registry's."""

    throttle_classes = (GlobalThrottle,)

    def get_exception_handler(self) -> Any:
        return _refusal

    def get(self, request: Request, **_: str) -> HttpResponseBase:
        match segments(request, BASE):
            case []:
                return _answer(200, connectedNodes=[], version={"version": "1"})
            case ["guid", guid]:
                return _answer(200, value=api.global_get(guid))
        raise NotFound("There is nothing at this path.")

    def put(self, request: Request, **_: str) -> HttpResponseBase:
        match segments(request, BASE):
            case ["guid", guid]:
                try:
                    jwt = self.body(request).decode()
                except UnicodeDecodeError:
                    raise BadMessage("Malformed JWT: it is not text.") from None
                is_first = put_record(request, guid, jwt)
                done = "written" if is_first else "updated"
                return _answer(200, Explanation=f"Dataset for GUID {guid} {done}.")
        raise NotFound("There is nothing at this path.")

    def delete(self, request: Request, **_: str) -> HttpResponseBase:
        raise MethodNotAllowed("DELETE", detail="A record is revoked by its owner, not deleted.")


def put_record(
    request: Request, guid: str, jwt: str, check: Callable[[str | None], None] | None = None
) -> bool:
    """Store a record; who has sent too many that cost much is refused before it is looked at.

    Args:
        request: whose sender is charged.
        guid: the GUID.
        jwt: the record.
        check: gets the record before, None if there is none; raises PreconditionFailed.

    Returns:
        Whether it is the first of its GUID.

    Raises:
        BadMessage: the text names what is wrong.
        TooMany: of records that cost much.
    """
    costly = ("COSTLY-RECORDS", who(request), api.costly_records_per_minute())

    def charge() -> None:
        if HTTP_LIMITS.take(*costly):
            raise TooMany(api.TOO_MANY_COSTLY)

    if HTTP_LIMITS.is_spent(*costly):
        raise TooMany(api.TOO_MANY_COSTLY)
    try:
        return api.global_put(guid, jwt, check, charge)
    except (TooMany, Unavailable, PreconditionFailed):
        raise
    except NodeError:
        HTTP_LIMITS.take(*costly)
        raise


def _answer(code: int, value: str = "", **more: Any) -> Response:
    words = "OK" if code == 200 else "Not found" if code == 404 else HTTPStatus(code).phrase
    return Response({"Code": code, "Description": words, **more, "Value": value}, status=code)


def _refusal(error: Exception, context: dict[str, Any]) -> HttpResponseBase | None:
    """Errors in the envelope of docs/reference/registry.md, section B1."""
    error = problems.of_the_database(error) or error
    if isinstance(error, NodeError):
        return problems.to_come_back(_answer(error.code, Explanation=error.description))
    if not isinstance(error, APIException):
        return None
    code = 401 if isinstance(error, NotAuthenticated) else error.status_code
    response = _answer(code, Explanation=str(error.detail))
    if code == 401:
        response["WWW-Authenticate"] = error_challenge(context)
    return problems.to_come_back(response, error)
