"""/api/v1: the registry as resources.

An entry is at its key (its URL in base64url). PUT registers or replaces, PATCH changes some fields,
DELETE disconnects (the entry is kept until it is purged), POST …/keep-alive is a sign of life.
Lists are paged by cursor, newest first. filters.py says what ETags are good for.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
from django.urls import get_resolver, get_script_prefix
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import (
    OpenApiParameter,
    OpenApiResponse,
    extend_schema,
    extend_schema_view,
)
from rest_framework import mixins, viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.pagination import CursorPagination
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse
from rest_framework.views import APIView

from msgnode.core import errors
from msgnode.core.explanations import ERRORS
from registry import api, entries, rows
from registry.api import Kind
from registry.models import DataObject, Hyperty, StatusChange, User

from . import filters, problems, serializers
from .access import RegistryAccess, RegistryThrottle, claimant
from .field_global import GlobalThrottle, put_record
from .parsers import SafeJSONParser
from .paths import url_of

KEY = OpenApiParameter("key", OpenApiTypes.STR, "path", pattern=r"^[A-Za-z0-9_-]{1,3300}$")
GUID = OpenApiParameter("guid", OpenApiTypes.STR, "path", pattern=r"^[A-Za-z0-9_-]{43}$")
PROBLEMS: dict[Any, Any] = {
    (code, problems.CONTENT_TYPE): OpenApiResponse(
        serializers.ProblemSerializer, error.explanation.title
    )
    for code, error in ERRORS.items()
    if code in (400, 401, 403, 404, 409, 410, 412, 429)
}
READS: dict[Any, Any] = {
    304: OpenApiResponse(None, "It is as If-None-Match says"),
    **{code: response for code, response in PROBLEMS.items() if code[0] != 412},
}


class NewestFirst(CursorPagination):
    """Pages of 50, at most 200 by `limit`; `next` and `previous` are links."""

    ordering = "-pk"
    page_size = 50
    page_size_query_param = "limit"
    max_page_size = 200

    def get_page_size(self, request: Request) -> int:
        """So many as are asked for, at most 200; what is no number is refused."""
        asked = request.query_params.get(self.page_size_query_param)
        if asked is None:
            return self.page_size
        if not (asked.isascii() and asked.isdigit() and int(asked[:20])):
            raise ValidationError({"limit": ["It must be a number, 1 or more."]})
        return min(int(asked[:20]), self.max_page_size)

    def decode_cursor(self, request: Request) -> Any:
        """Where the page begins; a cursor that says nothing would be the first page again."""
        cursor = super().decode_cursor(request)
        if cursor == (0, False, None) and request.query_params[self.cursor_query_param]:
            raise NotFound(self.invalid_cursor_message)
        if cursor and cursor.position is not None:
            if not (cursor.position.isascii() and cursor.position.isdigit()):
                raise NotFound(self.invalid_cursor_message)
            if len(cursor.position) > 19 or int(cursor.position) >= 2**63:
                raise NotFound(self.invalid_cursor_message)
        return cursor


class Index(APIView):
    """What there is below /api/v1."""

    renderer_classes = (JSONRenderer,)
    permission_classes = ()
    throttle_classes = (RegistryThrottle,)
    schema = None

    def get_exception_handler(self) -> Any:
        return problems.handle

    def get(self, request: Request) -> Response:
        here = request.build_absolute_uri(get_script_prefix())
        return Response({
            "resources": [here + path for path in _paths_below(request.path_info)],
            "description": reverse("api-docs", request=request),
            "document": reverse("openapi", request=request),
        })  # fmt: skip


def _paths_below(path: str) -> list[str]:
    """Every named path below this one, of whatever app; its parameters in braces."""
    known = get_resolver().reverse_dict
    names = {name for name in known if isinstance(name, str)}
    below = path.strip("/") + "/"
    return sorted({
        form % {name: f"{{{name}}}" for name in parameters}
        for name in names
        for forms, *_ in known.getlist(name)
        for form, parameters in forms
        if form.startswith(below)
    })  # fmt: skip


class V1View(viewsets.GenericViewSet[Any]):
    """What all views of /api/v1 have in common."""

    renderer_classes = (JSONRenderer,)
    parser_classes = (SafeJSONParser,)
    permission_classes = (RegistryAccess,)
    throttle_classes = (RegistryThrottle,)
    filter_backends: Any = (filters.KnownFilters,)
    pagination_class = NewestFirst

    def get_exception_handler(self) -> Any:
        return problems.handle

    def given(self, *, partial: bool = False) -> dict[str, Any]:
        """The fields of the request, checked."""
        given = self.get_serializer(data=self.request.data, partial=partial)
        given.is_valid(raise_exception=True)
        return dict(given.validated_data)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kw: Any) -> Any:
        if isinstance(response, Response) and response.status_code in (200, 201):
            response = filters.tagged(request, response)
        return super().finalize_response(request, response, *args, **kw)


class EntryViews(V1View):
    """Hyperties or data objects."""

    kind: ClassVar[Kind]
    lookup_field = "key"
    lookup_value_regex = "[^/]+"
    http_method_names: ClassVar = ["get", "put", "patch", "delete", "post", "head", "options"]

    def list(self, request: Request) -> Response:
        found = self.paginate_queryset(self.filter_queryset(self.get_queryset()))
        now = timezone.now()
        settled = [entries.settled(rows.entry(row), now)[0] for row in found or ()]
        return self.get_paginated_response(self.get_serializer(settled, many=True).data)

    def retrieve(self, request: Request, key: str) -> Response:
        entry = api.get(self.kind, _url(key))
        if entry is None:
            raise errors.NotFound("There is no entry with this key.")
        return Response(self.get_serializer(entry).data)

    def condition(self) -> api.Condition | None:
        """What the request says of the entry before it."""
        check = filters.condition(self.request)
        if check is None:
            return None
        return lambda entry: check(entry and self.get_serializer(entry).data)

    def update(self, request: Request, key: str) -> Response:
        values = self.given()
        url = _url(key)
        is_new = api.get(self.kind, url) is None
        done = api.register(
            self.kind, url, values, values.get("user", ""), self.condition(), claimant(request)
        )
        return Response(self.get_serializer(done.entry).data, status=201 if is_new else 200)

    def partial_update(self, request: Request, key: str) -> Response:
        values = self.given(partial=True)
        done = api.update(self.kind, _url(key), values, self.condition(), claimant(request))
        return Response(self.get_serializer(done.entry).data)

    def destroy(self, request: Request, key: str) -> Response:
        api.disconnect(self.kind, _url(key), condition=self.condition(), by=claimant(request))
        return Response(status=204)

    @action(detail=True, methods=["post"], url_path="keep-alive")
    def keep_alive(self, request: Request, key: str) -> Response:
        done = api.refresh(self.kind, _url(key), self.condition(), claimant(request))
        return Response(self.get_serializer(done.entry).data)


def _url(key: str) -> str:
    """The URL of an id in a path. Raises BadMessage."""
    return api.key(url_of(key), "URL")


def _documented(shape: Any, patch: Any) -> Any:
    """The operations of an entry's view, for the OpenAPI document."""
    one: dict[Any, Any] = {200: shape, **PROBLEMS}
    both: dict[Any, Any] = {201: shape, **one}
    write = [KEY, *filters.WRITE]
    return extend_schema_view(
        list=_listed(shape),
        retrieve=extend_schema(parameters=[KEY, *filters.READ], responses={200: shape, **READS}),
        update=extend_schema(parameters=write, request=shape, responses=both),
        partial_update=extend_schema(parameters=write, request=patch, responses=one),
        destroy=extend_schema(parameters=[KEY, *filters.END], responses={204: None, **PROBLEMS}),
        keep_alive=extend_schema(parameters=write, request=None, responses=one),
    )


def _listed(shape: Any) -> Any:
    return extend_schema(parameters=filters.READ, responses={200: shape(many=True), **READS})


@_documented(serializers.HypertySerializer, serializers.HypertyPatchSerializer)
class HypertyViews(EntryViews):
    """Hyperty instances of this domain."""

    kind = Kind.HYPERTY
    queryset: QuerySet[Hyperty] = Hyperty.objects.all()
    filterset_class = filters.HypertyFilters

    def get_serializer_class(self) -> Any:
        is_patch = self.action == "partial_update"
        return serializers.HypertyPatchSerializer if is_patch else serializers.HypertySerializer


@_documented(serializers.DataObjectSerializer, serializers.DataObjectSerializer)
class DataObjectViews(EntryViews):
    """Data object instances of this domain."""

    kind = Kind.OBJECT
    queryset: QuerySet[DataObject] = DataObject.objects.all()
    filterset_class = filters.DataObjectFilters
    serializer_class = serializers.DataObjectSerializer


@extend_schema_view(list=_listed(serializers.UserSerializer))
class UserViews(mixins.ListModelMixin, V1View):
    """Users with registered hyperties."""

    queryset: QuerySet[User] = User.objects.all()
    filterset_class = filters.UserFilters
    serializer_class = serializers.UserSerializer


@extend_schema_view(list=_listed(serializers.StatusChangeSerializer))
class ChangeViews(mixins.ListModelMixin, V1View):
    """The history of entries: every change of a status."""

    queryset: QuerySet[StatusChange] = StatusChange.objects.all()
    filterset_class = filters.ChangeFilters
    serializer_class = serializers.StatusChangeSerializer


@extend_schema_view(
    retrieve=extend_schema(
        parameters=[GUID, *filters.READ],
        responses={200: serializers.GlobalRecordSerializer, **READS},
    ),
    update=extend_schema(
        parameters=[GUID, *filters.WRITE],
        responses={
            200: serializers.GlobalRecordSerializer,
            201: serializers.GlobalRecordSerializer,
            **PROBLEMS,
        },
    ),
)
class GlobalRecordViews(V1View):
    """Signed records of the global registry."""

    throttle_classes = (GlobalThrottle,)
    lookup_field = "guid"
    lookup_value_regex = "[^/]+"
    serializer_class = serializers.GlobalRecordSerializer
    filter_backends = ()

    def retrieve(self, request: Request, guid: str) -> Response:
        return Response({"guid": guid, "jwt": api.global_get(guid)})

    def update(self, request: Request, guid: str) -> Response:
        jwt = self.given()["jwt"]
        check = filters.condition(request)
        is_first = put_record(
            request,
            guid,
            jwt,
            check and (lambda before: check(before and {"guid": guid, "jwt": before})),
        )
        return Response({"guid": guid, "jwt": jwt}, status=201 if is_first else 200)
