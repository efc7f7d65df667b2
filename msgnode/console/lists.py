"""The base of all lists of the console, made for 100,000 rows.

A list counts at most BOUND rows and shows "10,000+" beyond them; it reads one page, with its
related rows in the same query, ordered by an index; it searches by the beginning of an indexed
column.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar, cast
from weakref import ref

from django.conf import settings
from django.contrib.admin.actions import delete_selected
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.paginator import Paginator
from django.db import connection
from django.db.models import Count, IntegerField, Model, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import Http404, HttpRequest
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.contrib.filters.admin import DropdownFilter
from unfold.decorators import action
from unfold.views import ChangeList

from msgnode.models import Session

from .audit import fields_of, note
from .confirm import too_many

BOUND = 10_000
SESSIONS_SEARCHED = 200
SHORT = 60
"""Characters of a text that a list shows; the page of its row has all of it."""


class BoundedPaginator(Paginator):
    """Counts up to BOUND and has no page beyond: row 10,001 is found by searching."""

    template_name = "console/pagination.html"

    @cached_property
    def rows(self) -> int:
        """Rows there are, BOUND + 1 standing for more."""
        if isinstance(self.object_list, QuerySet):
            # keys alone: what a list works out for each row is not worked out to count it
            return self.object_list.order_by().values("pk")[: BOUND + 1].count()
        return len(self.object_list)

    @cached_property
    def count(self) -> int:
        """Rows that pages are offered for."""
        return min(self.rows, BOUND)

    @property
    def is_cut(self) -> bool:
        """Whether there are rows that no page is offered for."""
        return self.rows > BOUND


class _LastRequest:
    """The request whose list a page shows, as long as it is served.

    unfold keeps it at the page's admin for good, and with it the account and all it has rendered.
    """

    def __get__(self, page: Any, owner: type) -> HttpRequest:
        kept = page and page.__dict__.get("_last_request")
        request = kept and kept()
        if request is None:
            raise AttributeError("request")
        return cast("HttpRequest", request)

    def __set__(self, page: Any, request: HttpRequest) -> None:
        page._last_request = ref(request)


ModelAdmin.request = _LastRequest()


class BoundedChangeList(ChangeList):
    """A list that is not counted a second time for "Show all"."""

    def get_results(self, request: HttpRequest) -> None:
        """The rows of a page; where all are listed anyway no "Show all" is offered."""
        try:
            super().get_results(request)
        except (ValueError, OverflowError) as error:  # a filter by the year 99,999, perhaps
            raise IncorrectLookupParameters from error
        if not self.query and not self.has_active_filters:
            self.full_result_count = self.result_count  # so that "Show all" is not offered


class ConsoleAdmin(ModelAdmin):
    """A list that stays fast, of rows that cannot be changed unless a class allows it."""

    paginator = BoundedPaginator
    show_full_result_count = False
    list_per_page = 50
    list_max_show_all = 0
    list_fullwidth = True
    list_filter_submit = True
    search_fields: ClassVar[tuple[str, ...]] = ()
    compressed_fields = True
    actions: ClassVar[tuple[str, ...]] = ("delete_selected",)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """The list that counts up to BOUND."""
        return BoundedChangeList

    @action(description="Delete the selected %(verbose_name_plural)s", permissions=["delete"])
    def delete_selected(
        self, request: HttpRequest, queryset: QuerySet[Any]
    ) -> TemplateResponse | None:
        """Django's own, which asks first; bounded, because it names every row."""
        return None if too_many(request, queryset) else delete_selected(self, request, queryset)

    def row_of_page(self, request: HttpRequest, object_id: str) -> Any:
        """The row that an action of its page is about. Raises Http404."""
        if (row := self.get_object(request, object_id)) is None:
            raise Http404
        return row

    def search_filter(self, term: str) -> Q:
        """Which rows a search term finds, for a class with `search_fields`."""
        return begins_with(self.search_fields[0], term)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search for one term by `search_filter`, which an index answers."""
        term = search_term.strip()
        if not term or not self.search_fields:
            return queryset, False
        return queryset.filter(self.search_filter(term)), False


class AuditedAdmin(ConsoleAdmin):
    """An admin class whose changes are made known to the workers by `publish`.

    They are audited like all (auditing.py).
    """

    noted_as = ""
    """What the audit log calls a deletion of rows that auditing.py leaves out."""

    def publish(self) -> None:
        """Notify the workers of changed rows, as part of the transaction."""

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Save a row, and notify the workers in the same transaction."""
        if not change and hasattr(obj, "created_by"):
            obj.created_by = request.user.get_username()
        super().save_model(request, obj, form, change)
        self.publish()

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete a row, and notify the workers in the same transaction."""
        self._note(request, [obj])
        super().delete_model(request, obj)
        self.publish()

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        """Delete rows, and notify the workers once, in the same transaction."""
        self._note(request, queryset)
        super().delete_queryset(request, queryset)
        self.publish()

    def _note(self, request: HttpRequest, rows: Iterable[Any]) -> None:
        for row in rows if self.noted_as else ():
            note(request.user.get_username(), self.noted_as, row, fields_of(row), {})


class NeverEdited(AuditedAdmin):
    """Rows that come about elsewhere: looked at here, and deleted."""

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Always false: they are neither added one by one nor changed."""
        return False

    has_change_permission = has_add_permission


class WrittenByTheNode(ConsoleAdmin):
    """Rows that the workers write: shown here as they change, never edited here."""

    list_before_template = "console/live_list.html"
    change_form_before_template = "console/live_detail.html"

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Always false: a row records what has happened, or is, and is deleted by its age."""
        return False

    has_change_permission = has_delete_permission = has_add_permission


class OfferedFilter(DropdownFilter):
    """Rows by a value of a column; the table is not asked which values there are."""

    offered: ClassVar[Sequence[tuple[str, str]]] = ()

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The values that can be chosen, each with its words."""
        return list(self.offered)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows with the value that was chosen, if one was."""
        return self.narrowed(queryset, value) if (value := self.value()) else queryset

    def narrowed(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """The rows with a value."""
        return rows.filter(**{self.parameter_name: value})


def as_uuid(term: str) -> uuid.UUID | None:
    """The UUID a search term is, with or without hyphens."""
    try:
        return uuid.UUID(term)
    except ValueError:
        return None


def begins_with(field: str, beginning: str) -> Q:
    """Rows whose field begins with a text.

    SQLite uses no index for LIKE, but for a range; in PostgreSQL a range depends on the collation,
    and LIKE has an index of its own if the column is unique.
    """
    if connection.vendor == "sqlite":
        return Q(**{f"{field}__gte": beginning, f"{field}__lt": beginning + "\U0010ffff"})
    return Q(**{f"{field}__startswith": beginning})


def address_filter(field: str, term: str, schemes: Iterable[str]) -> Q:
    """Addresses that begin with the term, or whose part after `<scheme>://<domain>/` does."""
    if ":" in term:
        return begins_with(field, term)
    found = Q()
    for scheme in schemes:
        found |= begins_with(field, f"{scheme}://{settings.DOMAIN}/{term}")
    return found


def session_filter(term: str) -> Q:
    """Rows of the sessions with this id, or of the newest whose runtime URL begins with the term.

    They are looked up first: joined, the database would walk through all rows instead.
    """
    if (id_ := as_uuid(term)) is not None:
        return Q(session_id=id_)
    if not term.startswith(("runtime:", "hyperty-runtime:")):
        return Q(pk__in=())
    sessions = Session.objects.filter(begins_with("runtime_url", term)).order_by("-opened_at")
    return Q(session_id__in=list(sessions.values_list("pk", flat=True)[:SESSIONS_SEARCHED]))


def number_of(rows: QuerySet[Any], column: str) -> Coalesce:
    """How many of these rows there are for each row of a list, which their column refers to."""
    counted = rows.order_by().values(column).annotate(number=Count("pk")).values("number")
    return Coalesce(Subquery(counted, output_field=IntegerField()), 0)


def page_of(row: Model) -> str:
    """The path of the page of a row."""
    name = f"admin:{row._meta.app_label}_{row._meta.model_name}_change"
    return reverse(name, args=[row.pk])


def link(row: Model, text: str) -> SafeString:
    """A link to the page of a row."""
    return format_html('<a class="text-link" href="{}">{}</a>', page_of(row), text)


def cut(text: str) -> str:
    """A text, or the first words of a long one."""
    if len(text) <= SHORT:
        return text
    return f"{text[:SHORT].rpartition(' ')[0] or text[:SHORT]} …"


def in_short(text: str, short: str) -> SafeString:
    """The short form of a text in a cell of a list, with all of it as a tooltip."""
    return format_html('<span title="{}">{}</span>', text, short) if text else SafeString("")


def bar(used: int, most: int, text: str) -> SafeString:
    """How much of something is taken."""
    return format_html(
        '<progress class="console-progress" value="{}" max="{}"></progress> {}',
        used, most or 1, text,
    )  # fmt: skip
