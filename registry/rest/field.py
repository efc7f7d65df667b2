"""The field's domain registry over HTTP, for connectors as they are.

The endpoints of docs/reference/registry.md, section A2:

    PUT    hyperty/user/<user>/<url>            register            GET  hyperty/user/<user>
    DELETE hyperty/user/<user>/<url>            disconnect          GET  hyperty/guid/<guid>
    PUT    hyperty/url/<url>                    {}: keep alive      GET  hyperty/email/<email>
                                                else: update        GET  …/hyperty?resources=a,b
    PUT    hyperty/dataobject/<url>             register            GET  hyperty/url/<url>
    PUT    dataobject/url/<url>                 {}: keep alive      GET  registry/updated, live
    GET    hyperty/dataobject/url|name|reporter/<key>[/do?resources=a,b&dataSchemes=c]

Unavailability is 408 with the matches. Errors are `{"message": …}`; a registration without a
required key is 400 with an empty body.
"""

from __future__ import annotations

from typing import Any

import msgspec
from django.http import HttpResponse, HttpResponseBase, HttpResponseRedirect
from rest_framework.exceptions import APIException, NotAuthenticated
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from msgnode.core.errors import BadMessage, NodeError, NotFound
from registry import api
from registry.api import Kind, Search
from registry.records import MissingKey

from . import problems
from .access import RegistryAccess, RegistryThrottle, claimant
from .paths import segments

BASE = "/domain-registry"
MAX_BODY_BYTES = 256 * 1024
"""More than an entry may have (registry.records)."""
_FILTERS = ("resources", "dataSchemes")


class RegistryView(APIView):
    """What the field's two registries share: access, errors, the body."""

    renderer_classes = (JSONRenderer,)
    permission_classes = (RegistryAccess,)
    throttle_classes = (RegistryThrottle,)
    parser_classes = ()
    schema = None

    def body(self, request: Request) -> bytes:
        if int(request.META.get("CONTENT_LENGTH") or 0) > MAX_BODY_BYTES:
            raise BadMessage(f"The body is longer than {MAX_BODY_BYTES} bytes.")
        return request._request.body


class DomainRegistryView(RegistryView):
    """One view for the whole tree: the raw path decides (see paths.py)."""

    def get_exception_handler(self) -> Any:
        return _refusal

    def get(self, request: Request, **_: str) -> HttpResponseBase:
        match segments(request, BASE):
            case []:
                return HttpResponseRedirect(f"{BASE}/live")
            case ["live"]:
                return Response(_live())
            case ["error"]:
                raise NotAuthenticated
            case ["registry", "updated"]:
                return Response({entry.url: api.record(entry) for entry in api.take_news()})
            case ["hyperty", "url", url]:
                return _one(Kind.HYPERTY, url)
            case ["hyperty", "user" | "guid" | "email" as by, key]:
                return _all(Search.by(Kind.HYPERTY, by, _key(key)))
            case ["hyperty", "user" | "email" as by, key, _]:
                return _all(Search.by(Kind.HYPERTY, by, _key(key), **_filters(request)))
            case ["hyperty", "dataobject", "url", url]:
                return _one(Kind.OBJECT, url)
            case ["hyperty", "dataobject", "name" | "reporter" as by, key]:
                return _all(Search.by(Kind.OBJECT, by, _key(key)))
            case ["hyperty", "dataobject", "url" | "name" | "reporter" as by, key, _]:
                return _all(Search.by(Kind.OBJECT, by, _key(key), **_filters(request)))
        raise NotFound

    def put(self, request: Request, **_: str) -> HttpResponseBase:
        by = claimant(request)
        match segments(request, BASE):
            case ["hyperty", "user", user, url]:
                api.register(Kind.HYPERTY, url, self._json(request), user, by=by)
                return _said("Hyperty created")
            case ["hyperty", "dataobject", url]:
                api.register(Kind.OBJECT, url, self._json(request), by=by)
                return _said("Data object created")
            case ["hyperty", "url", url]:
                is_refresh, done = self._change(Kind.HYPERTY, url, request)
                said = "Keep alive" if is_refresh else "Hyperty updated"
                return _said(said, statusChanged="true" if done.status_changed else "false")
            case ["dataobject", "url", url]:
                is_refresh, done = self._change(Kind.OBJECT, url, request)
                return _said("Keep alive" if is_refresh else "data object updated")
        raise NotFound

    def delete(self, request: Request, **_: str) -> HttpResponseBase:
        match segments(request, BASE):
            case ["hyperty", "user", user, url]:
                api.disconnect(Kind.HYPERTY, _key(url), _key(user), by=claimant(request))
                return _said("Hyperty deleted")
        raise NotFound

    def _change(self, kind: Kind, url: str, request: Request) -> tuple[bool, api.Done]:
        body = self._json(request)
        url = _key(url)
        if body == {}:
            return True, api.refresh(kind, url, by=claimant(request))
        return False, api.update(kind, url, body, by=claimant(request))

    def _json(self, request: Request) -> object:
        try:
            return msgspec.json.decode(self.body(request))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise BadMessage("The body is not JSON.") from None


def _one(kind: Kind, url: str) -> Response:
    found = [entry for entry in (api.get(kind, _key(url)),) if entry]
    code = api.outcome(found)
    if code == NotFound.code:
        raise NotFound
    return Response(api.record(found[0]), status=code)


def _all(search: Search) -> Response:
    found = api.find(search)
    code = api.outcome(found)
    if code == NotFound.code:
        raise NotFound
    return Response({entry.url: api.record(entry) for entry in found}, status=code)


def _filters(request: Request) -> dict[str, tuple[str, ...]]:
    """The filters of the query; any other set of keys finds nothing."""
    query = request.query_params
    if not query or set(query) - set(_FILTERS):
        raise NotFound
    resources, schemes = (
        tuple(query[name].split(",")) if name in query else () for name in _FILTERS
    )
    return {"resources": resources, "data_schemes": schemes}


def _key(text: str) -> str:
    return api.key(text, "id in the path")


def _said(message: str, **more: str) -> Response:
    return Response({**more, "message": message})


def _live() -> dict[str, str]:
    numbers = api.statistics()
    return {
        "Storage_type": "Database",
        "Hyperties_stored": str(numbers["hyperties"]),
        "Data_objects_stored": str(numbers["data_objects"]),
        "status": "up",
    }


def _refusal(error: Exception, context: dict[str, Any]) -> HttpResponseBase | None:
    """Errors in the format of docs/reference/registry.md, section A2."""
    error = problems.of_the_database(error) or error
    if isinstance(error, MissingKey):
        return HttpResponse(status=error.code, content_type="application/json")
    if isinstance(error, NotFound):
        return Response({"message": "Not Found"}, status=404)
    if isinstance(error, NodeError):
        return problems.to_come_back(Response({"message": error.description}, status=error.code))
    if isinstance(error, NotAuthenticated):
        response = Response({"message": "Unauthorized."}, status=401)
        response["WWW-Authenticate"] = error_challenge(context)
        return response
    if isinstance(error, APIException):
        response = Response({"message": str(error.detail)}, status=error.status_code)
        return problems.to_come_back(response, error)
    return None


def error_challenge(context: dict[str, Any]) -> str:
    """The challenge for a client that must authenticate."""
    view = context["view"]
    return view.get_authenticate_header(view.request) or 'Basic realm="registry"'
