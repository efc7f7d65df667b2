"""The registry in the console: entries, their history, users, runtimes and signed records.

Entries belong to their clients and cannot be edited here; an operator may disconnect them, which
observers are told, or purge them for good. A search term is first matched with whole keys, by the
keys' indexes; if none matches, with the beginnings of keys; and if there is none either, with any
text of the newest entries. Lists are paged without counting, so that a million rows are no problem.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.db import connection
from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.timesince import timesince, timeuntil
from unfold.admin import ModelAdmin
from unfold.contrib.filters.admin import DropdownFilter
from unfold.decorators import action, display
from unfold.paginator import InfinitePaginator

from . import api, entries, lifecycle, rows
from .entries import Kind
from .models import DataObject, GlobalRecord, Hyperty, Runtime, StatusChange, User
from .searches import guid_spellings, with_status

SELECTED = 1000
LOOKED_THROUGH = 100_000
SHOWN_CHANGES = 20
_LABELS = {"live": "success", "created": "info", "disconnected": "warning", "dead": "danger"}


class RegistryAdmin(ModelAdmin):
    """Rows written by clients: shown here, found by any of `keys` or `texts`, never edited."""

    keys: ClassVar[tuple[str, ...]] = ()
    texts: ClassVar[tuple[str, ...]] = ()
    search_fields = ("pk",)  # shows the search box; get_search_results does the search
    paginator = InfinitePaginator
    show_full_result_count = False
    list_per_page = 50
    list_fullwidth = True
    list_filter_submit = True

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    has_change_permission = has_delete_permission = has_add_permission

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        for key in self.keys:
            values = guid_spellings(term) if key == "guid" else [term]
            found = queryset.filter(**{f"{key}__in": values})
            if found.order_by().exists():
                return found, False
        return queryset.filter(pk__in=self._beginning(term) or self._holding(term)), False

    def quick_search(self, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        """Rows with a key that is the term or begins with it, for the global search."""
        return queryset.filter(pk__in=self._beginning(term.strip()))

    def _beginning(self, term: str) -> set[Any]:
        """Rows with a key that begins with the term, by the keys' indexes."""
        rows_ = self.model._default_manager.order_by()
        ids: set[Any] = set()
        for key in self.keys:
            ids.update(rows_.filter(begins_with(key, term)).values_list("pk", flat=True)[:SELECTED])
        return ids

    def _holding(self, term: str) -> set[Any]:
        """Rows that contain the term anywhere, among the newest ones, which are all read."""
        newest = self.model._default_manager.order_by("-pk").values_list("pk", flat=True)
        oldest = newest[LOOKED_THROUGH : LOOKED_THROUGH + 1].first() or 0
        holds = Q()
        texts = {}
        for number, name in enumerate((*self.keys, *self.texts)):
            texts[f"text_{number}"] = Cast(name, TextField())
            holds |= Q(**{f"text_{number}__icontains": term})
        found = newest.annotate(**texts).filter(holds, pk__gt=oldest)
        return set(found[:SELECTED])


def begins_with(column: str, beginning: str) -> Q:
    """Rows whose column begins with a text; SQLite uses an index for a range but not for LIKE."""
    if connection.vendor == "sqlite":
        return Q(**{f"{column}__gte": beginning, f"{column}__lt": beginning + "\U0010ffff"})
    return Q(**{f"{column}__startswith": beginning})


class StatusFilter(DropdownFilter):
    """The current status; an entry that has just expired is disconnected."""

    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(word, word) for word in _LABELS]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        word = self.value()
        return with_status(queryset, word) if word else queryset


class ExpiryFilter(DropdownFilter):
    """Entries that will expire soon without a keep-alive."""

    title = "expires"
    parameter_name = "expires_within"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("60", "within a minute"), ("600", "within 10 minutes"), ("3600", "within an hour")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() not in ("60", "600", "3600"):
            return queryset
        now = timezone.now()
        end = now + timedelta(seconds=int(self.value()))
        return queryset.filter(expires_at__gt=now, expires_at__lte=end)


class EntryAdmin(RegistryAdmin):
    """Hyperties and data objects."""

    kind: ClassVar[Kind]
    list_filter = (StatusFilter, ExpiryFilter)
    actions = ("disconnect", "purge")
    sortable_by = ()
    readonly_fields = ("status_now", "expires_in", "history")

    @display(description="status", label=_LABELS)
    def status_now(self, row: Any) -> str:
        return entries.settled(rows.entry(row), timezone.now())[0].status

    @display(description="life left")
    def expires_in(self, row: Any) -> str:
        now = timezone.now()
        if row.expires_at is None:
            return f"ended {timesince(row.ended_at, now)} ago" if row.ended_at else "ended"
        return timeuntil(row.expires_at, now) if row.expires_at > now else "none"

    @display(description="history")
    def history(self, row: Any) -> str:
        found = StatusChange.objects.filter(url=row.url).order_by("-id")[:SHOWN_CHANGES]
        lines = format_html_join(
            "",
            "<tr><td>{}</td><td>{} → {}</td><td>{}</td></tr>",
            ((f"{c.at:%Y-%m-%d %H:%M:%S}", c.before or "new", c.after, c.cause) for c in found),
        )
        link = f"{reverse('admin:registry_statuschange_changelist')}?{urlencode({'q': row.url})}"
        return format_html(
            '<table class="console-table"><thead><tr><th scope="col">when (UTC)</th>'
            '<th scope="col">status</th><th scope="col">because</th></tr></thead>'
            '<tbody>{}</tbody></table>'
            '<a class="text-link" href="{}">All changes</a>',
            lines, link,
        )  # fmt: skip

    def has_operate_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(f"registry.change_{self.opts.model_name}")

    def has_purge_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(f"registry.delete_{self.opts.model_name}")

    def _tell(self, request: HttpRequest, what: str, rows: list[Any]) -> None:
        for row in rows:
            for told in api.operations:
                told(request.user.get_username(), f"{self.opts.model_name}.{what}", row)

    @action(description="Disconnect the selected entries", permissions=["operate"])
    def disconnect(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        chosen = list(queryset[:SELECTED])
        done = lifecycle.disconnect_rows(self.kind, [row.pk for row in chosen])
        for row in chosen:
            self.log_change(request, row, "Disconnected.")
        self._tell(request, "disconnect", chosen)
        messages.success(request, f"{done} entries disconnected; their observers are notified.")

    @action(description="Purge the selected entries for good", permissions=["purge"])
    def purge(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        chosen = list(queryset[:SELECTED])
        lifecycle.disconnect_rows(self.kind, [row.pk for row in chosen])  # observers are told
        self.log_deletions(request, queryset.filter(pk__in=[row.pk for row in chosen]))
        self._tell(request, "purge", chosen)
        lifecycle.delete_rows(rows.MODELS[self.kind], [row.pk for row in chosen])
        messages.success(request, f"{len(chosen)} entries purged.")


@admin.register(Hyperty)
class HypertyAdmin(EntryAdmin):
    """Hyperties; an operator can end a registration."""

    kind = Kind.HYPERTY
    keys = ("url", "user__user_id", "user__idp_identifier", "guid", "runtime__url")
    texts = ("descriptor", "resources", "data_schemes", "status")
    search_help_text = "URL, user, e-mail address, GUID, runtime, descriptor, resource…"
    list_display = ("url", "user_id", "status_now", "expires_in", "modified_at")
    fields = (
        *("url", "user", "guid", "runtime", "descriptor", "resources", "data_schemes"),
        *("status_now", "expires", "expires_in", "started_at", "modified_at"),
        *("p2p_requester", "p2p_handler", "history"),
    )


@admin.register(DataObject)
class DataObjectAdmin(EntryAdmin):
    """Data objects, likewise."""

    kind = Kind.OBJECT
    keys = ("url", "name", "reporter", "runtime__url")
    texts = ("schema", "resources", "data_schemes", "status")
    search_help_text = "URL, name, reporter, runtime, schema, resource…"
    list_display = ("url", "name", "reporter", "status_now", "expires_in", "modified_at")
    fields = (
        *("url", "name", "reporter", "runtime", "schema", "resources", "data_schemes"),
        *("status_now", "expires", "expires_in", "started_at", "modified_at"),
        *("p2p_requester", "p2p_handler", "history"),
    )


class NamedAdmin(RegistryAdmin):
    """What hyperties name, with the way to these."""

    @display(description="hyperties")
    def entries_link(self, row: User | Runtime) -> str:
        link = f"{reverse('admin:registry_hyperty_changelist')}?{urlencode({'q': str(row)})}"
        return format_html('<a class="text-link" href="{}">show</a>', link)


@admin.register(User)
class UserAdmin(NamedAdmin):
    """Users, with their entries."""

    keys = ("user_id", "idp_identifier")
    search_help_text = "User id or e-mail address"
    list_display = ("user_id", "idp_identifier", "first_seen", "entries_link")


@admin.register(Runtime)
class RuntimeAdmin(NamedAdmin):
    """Runtimes, with their entries."""

    keys = ("url",)
    search_help_text = "Runtime URL"
    list_display = ("url", "first_seen", "entries_link")


@admin.register(StatusChange)
class StatusChangeAdmin(RegistryAdmin):
    """The history of statuses."""

    keys = ("url",)
    search_help_text = "URL of an entry"
    list_display = ("at", "url", "before", "after", "cause")


@admin.register(GlobalRecord)
class GlobalRecordAdmin(RegistryAdmin):
    """Signed records of the global registry."""

    keys = ("guid",)
    texts = ("user_ids",)
    search_help_text = "GUID or user id"
    list_display = ("guid", "user_ids", "state", "last_update", "timeout")

    @display(
        description="state",
        label={"served": "success", "revoked": "danger", "timed out": "warning"},
    )
    def state(self, row: GlobalRecord) -> str:
        if row.is_revoked:
            return "revoked"
        return "timed out" if row.timeout <= timezone.now() else "served"
