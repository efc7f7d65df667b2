"""/api/v1: the registry as resources.

An entry is at its key (its URL in base64url). PUT registers or replaces, PATCH changes some fields,
DELETE disconnects (the entry is kept until it is purged), POST …/keep-alive is a sign of life.
Lists are paged by cursor, newest first.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
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
from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination
from rest_framework.parsers import JSONParser
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse
from rest_framework.views import APIView

from msgnode.core import errors
from registry import api, entries, rows
from registry.api import Kind
from registry.models import DataObject, Hyperty, StatusChange, User

from . import filters, problems, serializers
from .access import RegistryAccess, RegistryThrottle
from .paths import url_of

KEY = OpenApiParameter("key", OpenApiTypes.STR, "path", pattern=r"^[A-Za-z0-9_-]{1,3300}$")
GUID = OpenApiParameter("guid", OpenApiTypes.STR, "path", pattern=r"^[A-Za-z0-9_-]{43}$")
PROBLEMS: dict[Any, Any] = {
    (code, problems.CONTENT_TYPE): OpenApiResponse(serializers.ProblemSerializer, title)
    for code, (_, title, _) in problems.PAGES.items()
    if code in (400, 401, 403, 404, 409, 410, 429)
}


class NewestFirst(CursorPagination):
    """Pages of 50, at most 200 by `limit`; `next` and `previous` are links."""

    ordering = "-pk"
    page_size = 50
    page_size_query_param = "limit"
    max_page_size = 200

    def decode_cursor(self, request: Request) -> Any:
        cursor = super().decode_cursor(request)
        if cursor and cursor.position is not None:
            if not (cursor.position.isascii() and cursor.position.isdigit()):
                raise NotFound(self.invalid_cursor_message)
            if int(cursor.position) >= 2**63:
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
        names = ("hyperty", "data-object", "registry-user", "status-change")
        links = [reverse(f"{name}-list", request=request) for name in names]
        guid = reverse("global-record-detail", args=["GUID"], request=request)
        return Response({
            "resources": [*links, guid.replace("GUID", "{guid}")],
            "description": reverse("api-docs", request=request),
            "document": reverse("openapi", request=request),
        })  # fmt: skip


class V1View(viewsets.GenericViewSet[Any]):
    """What all views of /api/v1 have in common."""

    renderer_classes = (JSONRenderer,)
    parser_classes = (JSONParser,)
    permission_classes = (RegistryAccess,)
    throttle_classes = (RegistryThrottle,)
    filter_backends: Any = (filters.KnownFilters,)
    pagination_class = NewestFirst

    def get_exception_handler(self) -> Any:
        return problems.handle


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
        entry = api.get(self.kind, api.key(url_of(key), "URL"))
        if entry is None:
            raise errors.NotFound("There is no entry with this key.")
        return Response(self.get_serializer(entry).data)

    def update(self, request: Request, key: str) -> Response:
        given = self.get_serializer(data=request.data)
        given.is_valid(raise_exception=True)
        values = dict(given.validated_data)
        url = url_of(key)
        is_new = api.get(self.kind, api.key(url, "URL")) is None
        done = api.register(self.kind, url, values, values.get("user", ""))
        return Response(self.get_serializer(done.entry).data, status=201 if is_new else 200)

    def partial_update(self, request: Request, key: str) -> Response:
        given = self.get_serializer(data=request.data, partial=True)
        given.is_valid(raise_exception=True)
        done = api.update(self.kind, api.key(url_of(key), "URL"), dict(given.validated_data))
        return Response(self.get_serializer(done.entry).data)

    def destroy(self, request: Request, key: str) -> Response:
        api.disconnect(self.kind, api.key(url_of(key), "URL"))
        return Response(status=204)

    @action(detail=True, methods=["post"], url_path="keep-alive")
    def keep_alive(self, request: Request, key: str) -> Response:
        done = api.refresh(self.kind, api.key(url_of(key), "URL"))
        return Response(self.get_serializer(done.entry).data)


def _documented(shape: Any, patch: Any) -> Any:
    """The operations of an entry's view, for the OpenAPI document."""
    one: dict[Any, Any] = {200: shape, **PROBLEMS}
    both: dict[Any, Any] = {201: shape, **one}
    key = [KEY]
    return extend_schema_view(
        list=extend_schema(responses={200: shape(many=True), **PROBLEMS}),
        retrieve=extend_schema(parameters=key, responses=one),
        update=extend_schema(parameters=key, request=shape, responses=both),
        partial_update=extend_schema(parameters=key, request=patch, responses=one),
        destroy=extend_schema(parameters=key, responses={204: None, **PROBLEMS}),
        keep_alive=extend_schema(parameters=key, request=None, responses=one),
    )


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


@extend_schema_view(
    list=extend_schema(responses={200: serializers.UserSerializer(many=True), **PROBLEMS})
)
class UserViews(mixins.ListModelMixin, V1View):
    """Users with registered hyperties."""

    queryset: QuerySet[User] = User.objects.all()
    filterset_class = filters.UserFilters
    serializer_class = serializers.UserSerializer


@extend_schema_view(
    list=extend_schema(responses={200: serializers.StatusChangeSerializer(many=True), **PROBLEMS})
)
class ChangeViews(mixins.ListModelMixin, V1View):
    """The history of entries: every change of a status."""

    queryset: QuerySet[StatusChange] = StatusChange.objects.all()
    filterset_class = filters.ChangeFilters
    serializer_class = serializers.StatusChangeSerializer


@extend_schema_view(
    retrieve=extend_schema(
        parameters=[GUID], responses={200: serializers.GlobalRecordSerializer, **PROBLEMS}
    ),
    update=extend_schema(
        parameters=[GUID],
        responses={
            200: serializers.GlobalRecordSerializer,
            201: serializers.GlobalRecordSerializer,
            **PROBLEMS,
        },
    ),
)
class GlobalRecordViews(V1View):
    """Signed records of the global registry."""

    lookup_field = "guid"
    lookup_value_regex = "[^/]+"
    serializer_class = serializers.GlobalRecordSerializer
    filter_backends = ()

    def retrieve(self, request: Request, guid: str) -> Response:
        return Response({"guid": guid, "jwt": api.global_get(guid)})

    def update(self, request: Request, guid: str) -> Response:
        given = self.get_serializer(data=request.data)
        given.is_valid(raise_exception=True)
        jwt = given.validated_data["jwt"]
        is_first = api.global_put(guid, jwt)
        return Response({"guid": guid, "jwt": jwt}, status=201 if is_first else 200)
