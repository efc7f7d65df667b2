"""Filters of /api/v1 lists (all that are given must hold), and conditional requests.

`status` is the status now, also of entries whose time has run out a moment ago. `resources` and
`dataSchemes` may be repeated (all must be there) and need a key beside them, because only keys have
an index.

Conditional requests (RFC 9110, section 13): a response is not repeated if the client has it
already, and a state the client does not know is not overwritten. A tag is a hash of what a read
shows. Every response with a body carries it as ETag. A read with If-None-Match is answered 304 if
the tag is the same; a write with If-Match (or If-None-Match: *, to create only) is refused with 412
unless it holds, which is decided in the transaction of the write.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC
from hashlib import blake2b
from typing import Any

import django_filters
import msgspec
from django import forms
from django.db.models import QuerySet
from django.utils.http import parse_etags
from django_filters.rest_framework import DjangoFilterBackend
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from msgnode.core.errors import PreconditionFailed
from registry import searches
from registry.models import DataObject, Hyperty, StatusChange, User
from registry.records import MAX_ITEM, MAX_KEY, MAX_WORD

_CODES = [200, 201]


def _header(name: str, text: str) -> OpenApiParameter:
    return OpenApiParameter(name, OpenApiTypes.STR, OpenApiParameter.HEADER, description=text)


ETAG = OpenApiParameter(
    "ETag", OpenApiTypes.STR, OpenApiParameter.HEADER, required=True, response=_CODES,
    description="The tag of what is shown, for If-None-Match and If-Match.",
)  # fmt: skip
READ = [ETAG, _header("If-None-Match", "Tags that are known: 304 if one of them holds.")]
WRITE = [
    ETAG,
    _header("If-Match", "The tag that is to be changed, or *: 412 if it is another by now."),
    _header("If-None-Match", "*: 412 if it is there already."),
]
END = WRITE[1:]


def tag_of(shown: Any) -> str:
    """The tag of the fields of an answer."""
    text = msgspec.json.encode(shown, enc_hook=str)
    return f'"{blake2b(text, digest_size=12).hexdigest()}"'


def _tags(header: str) -> list[str]:
    """The tags of a header, weak ones like others."""
    return [each.removeprefix("W/") for each in parse_etags(header)]


def tagged(request: Request, response: Response) -> Response:
    """The answer with its tag, or 304 if the client has it."""
    tag = tag_of(response.data)
    if request.method in ("GET", "HEAD"):
        known = _tags(request.headers.get("If-None-Match", ""))
        if "*" in known or tag in known:
            response = Response(status=304)
        response["Cache-Control"] = "private, no-cache"
    response["ETag"] = tag
    return response


def condition(request: Request) -> Callable[[Any], None] | None:
    """A check of the present state before a write, None if the request has no condition.

    It gets the fields of the entry, None if there is none, and raises PreconditionFailed.
    """
    wanted = request.headers.get("If-Match")
    unwanted = request.headers.get("If-None-Match")
    if wanted is None and unwanted is None:
        return None

    def check(shown: Any) -> None:
        tag = tag_of(shown) if shown is not None else ""
        if wanted is not None:
            tags = parse_etags(wanted)
            if not tag or not ("*" in tags or tag in tags):
                raise PreconditionFailed("It is not as If-Match says: it was changed meanwhile.")
        if unwanted is not None and tag:
            tags = _tags(unwanted)
            if "*" in tags or tag in tags:
                raise PreconditionFailed("It is there already, and If-None-Match says otherwise.")

    return check


PAGING = frozenset({"cursor", "limit"})


class KnownFilters(DjangoFilterBackend):
    """A filter that is not there would find everything; it is refused instead."""

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: Any) -> Any:
        known = self.get_filterset_class(view, queryset).base_filters.keys()
        if unknown := sorted(set(request.query_params) - known - PAGING):
            words = f"There is no such filter; one of {', '.join(sorted(known | PAGING))}."
            raise ValidationError({name: [words] for name in unknown})
        return super().filter_queryset(request, queryset, view)


def _exact(field: str) -> django_filters.CharFilter:
    return django_filters.CharFilter(field_name=field, max_length=MAX_KEY, strip=False)


class TimeField(django_filters.fields.IsoDateTimeField):
    """A moment that every database takes: its UTC is a date, too."""

    def clean(self, value: Any) -> Any:
        moment = super().clean(value)
        try:
            return moment and moment.astimezone(UTC)
        except OverflowError:
            raise forms.ValidationError(self.error_messages["invalid"]) from None


class TimeFilter(django_filters.IsoDateTimeFilter):
    """Compares moments."""

    field_class = TimeField


class EntryFilters(django_filters.FilterSet):
    """What hyperties and data objects have in common."""

    keys: tuple[str, ...] = ("url", "runtime")

    url = _exact("url")
    runtime = _exact("runtime_id")
    status = django_filters.CharFilter(method="with_status", max_length=MAX_WORD, strip=False)
    expiresBefore = TimeFilter("expires_at", lookup_expr="lt")
    modifiedAfter = TimeFilter("modified_at", lookup_expr="gt")
    resources = django_filters.CharFilter(method="leave", max_length=MAX_ITEM, strip=False)
    dataSchemes = django_filters.CharFilter(method="leave", max_length=MAX_ITEM, strip=False)

    def with_status(self, found: QuerySet[Any], name: str, status: str) -> QuerySet[Any]:
        return searches.with_status(found, status)

    def leave(self, found: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return found

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        found = super().filter_queryset(queryset)
        wanted, schemes = (set(self.data.getlist(name)) for name in ("resources", "dataSchemes"))
        if not wanted and not schemes:
            return found
        if not any(self.form.cleaned_data.get(key) for key in self.keys):
            raise ValidationError({"resources": [f"needs one of {', '.join(self.keys)} beside it"]})
        limit = searches.MAX_MATCHES
        rows = list(found.values_list("pk", "resources", "data_schemes")[: limit + 1])
        if len(rows) > limit:
            raise ValidationError({"resources": [f"more than {limit} entries to look through"]})
        matching = [pk for pk, r, s in rows if wanted <= set(r) and schemes <= set(s)]
        return found.filter(pk__in=matching)


class HypertyFilters(EntryFilters):
    """What hyperties may be searched by."""

    keys = ("url", "runtime", "user", "email", "guid")

    user = _exact("user_id")
    email = _exact("user__idp_identifier")
    guid = django_filters.CharFilter(method="with_guid", max_length=MAX_KEY, strip=False)

    class Meta:
        model = Hyperty
        fields: tuple[str, ...] = ()

    def with_guid(self, found: QuerySet[Any], name: str, guid: str) -> QuerySet[Any]:
        return found.filter(guid__in=searches.guid_spellings(guid))


class DataObjectFilters(EntryFilters):
    """What data objects may be searched by."""

    keys = ("url", "runtime", "name", "reporter")

    name = _exact("name")
    reporter = _exact("reporter")

    class Meta:
        model = DataObject
        fields: tuple[str, ...] = ()


class UserFilters(django_filters.FilterSet):
    """What users may be searched by."""

    userID = _exact("user_id")
    email = _exact("idp_identifier")

    class Meta:
        model = User
        fields: tuple[str, ...] = ()


class ChangeFilters(django_filters.FilterSet):
    """What changes of status may be searched by."""

    url = _exact("url")

    class Meta:
        model = StatusChange
        fields: tuple[str, ...] = ()
