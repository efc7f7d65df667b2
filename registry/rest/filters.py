"""Filters of /api/v1 lists: all that are given must hold.

`status` is the status now, also of entries whose time has run out a moment ago. `resources` and
`dataSchemes` may be repeated (all must be there) and need a key beside them, because only keys have
an index.
"""

from __future__ import annotations

from typing import Any

import django_filters
from django.db.models import Q, QuerySet
from django.utils import timezone
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from registry import entries, searches
from registry.models import DataObject, Hyperty, StatusChange, User
from registry.records import MAX_ITEM, MAX_KEY, MAX_WORD

PAGING = frozenset({"cursor", "limit"})


class KnownFilters(DjangoFilterBackend):
    """A filter that is not there would find everything; it is refused instead."""

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: Any) -> Any:
        known = self.get_filterset_class(view, queryset).base_filters.keys()
        if unknown := sorted(set(request.query_params) - known - PAGING):
            words = f"There is no such filter; one of {', '.join(sorted(known | PAGING))}."
            raise ValidationError({name: [words] for name in unknown})
        return super().filter_queryset(request, queryset, view)


def _exact(field: str, limit: int = MAX_KEY) -> django_filters.CharFilter:
    return django_filters.CharFilter(field_name=field, max_length=limit, strip=False)


class EntryFilters(django_filters.FilterSet):
    """What hyperties and data objects have in common."""

    keys: tuple[str, ...] = ("url", "runtime")

    url = _exact("url")
    runtime = _exact("runtime_id")
    status = django_filters.CharFilter(method="with_status", max_length=MAX_WORD, strip=False)
    expiresBefore = django_filters.IsoDateTimeFilter("expires_at", lookup_expr="lt")
    modifiedAfter = django_filters.IsoDateTimeFilter("modified_at", lookup_expr="gt")
    resources = django_filters.CharFilter(method="leave", max_length=MAX_ITEM, strip=False)
    dataSchemes = django_filters.CharFilter(method="leave", max_length=MAX_ITEM, strip=False)

    def with_status(self, found: QuerySet[Any], name: str, status: str) -> QuerySet[Any]:
        now = timezone.now()
        if status == entries.DISCONNECTED:
            return found.filter(Q(status=status) | Q(expires_at__lte=now))
        return found.filter(status=status).exclude(expires_at__lte=now)

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
