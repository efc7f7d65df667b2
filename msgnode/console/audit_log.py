"""The audit log in the console: who changed what and since when, and the way back."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import RangeDateTimeFilter
from unfold.decorators import action, display

from msgnode.models import AuditEntry

from .audit import Fields
from .lists import OfferedFilter, WrittenByTheNode, begins_with, page_of
from .own_log_in import factor_first
from .take_back import BY_SECOND_FACTOR, CannotTakeBack, check, take_back


class SinceFilter(OfferedFilter):
    """Changes of the last hours and days."""

    title = "since"
    parameter_name = "hours"
    offered = (("1", "an hour ago"), ("24", "yesterday, 24 hours"), ("168", "a week ago"))

    def narrowed(self, rows: QuerySet[AuditEntry], value: str) -> QuerySet[AuditEntry]:
        if value not in dict(self.offered):
            return rows
        return rows.filter(at__gte=timezone.now() - timedelta(hours=int(value)))


@admin.register(AuditEntry)
class AuditEntryAdmin(WrittenByTheNode):
    list_display = ("at", "actor", "action", "object", "what")
    list_filter = (SinceFilter, ("at", RangeDateTimeFilter))
    actions_detail = ("take_back",)
    ordering = ("-id",)
    sortable_by = ("at",)
    search_fields = ("object",)
    search_help_text = "Object, action or operator (the beginning)"
    fields = ("at", "actor", "action", "object", "changes")

    def search_filter(self, term: str) -> Any:
        return (
            begins_with("object", term) | begins_with("action", term) | begins_with("actor", term)
        )

    @display(description="what changed")
    def what(self, entry: AuditEntry) -> str:
        names = [name for name, value in entry.after.items() if entry.before.get(name) != value]
        if not entry.before:
            return "added"
        return ", ".join(names) if entry.after else "deleted"

    def has_take_back_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """The link to revert a change, where that is possible and allowed."""
        if not self.has_view_permission(request):
            return False
        entry = self.get_object(request, object_id) if object_id else None
        try:
            if entry is not None and request.method != "POST":
                check(entry, request.user)
        except CannotTakeBack:
            return False
        return True

    @action(
        description="Undo the change", url_path="take-back", permissions=["take_back"], icon="undo"
    )
    def take_back(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """What would be set back, and the button."""
        entry: AuditEntry = self.row_of_page(request, object_id)
        if entry.action.partition(".")[0] in BY_SECOND_FACTOR and (
            refusal := factor_first(request, request.path)
        ):
            return refusal
        fault = ""
        try:
            if request.method == "POST":
                take_back(entry, request)
                messages.success(request, f"{entry.object} has its previous values again.")
                return redirect("admin:msgnode_auditentry_changelist")
        except CannotTakeBack as error:
            fault = str(error)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": "Undo a change",
            "entry": entry,
            "fault": fault,
            "changes": changes_table(entry.after, entry.before),
            "back": page_of(entry),
        }
        return TemplateResponse(request, "console/take_back.html", context)

    @display(description="what changed")
    def changes(self, entry: AuditEntry) -> SafeString | str:
        return changes_table(entry.before, entry.after) or "no values were recorded"


def changes_table(before: Fields, after: Fields) -> SafeString | str:
    """One line per field, before and after; changed ones are marked, unchanged ones last."""
    names = list(dict.fromkeys([*before, *after]))
    names.sort(key=lambda name: before.get(name) == after.get(name))
    if not names:
        return ""
    lines = format_html_join(
        "",
        '<tr><th scope="row">{}</th><td>{}</td><td>{}</td></tr>',
        ((name.replace("_", " "), *_both(before, after, name)) for name in names),
    )
    return format_html(
        '<table class="console-table console-changes"><thead><tr><th scope="col">field</th>'
        '<th scope="col">before</th><th scope="col">after</th></tr></thead>'
        "<tbody>{}</tbody></table>",
        lines,
    )


def _both(before: Fields, after: Fields, name: str) -> tuple[SafeString, SafeString]:
    """The old and the new value, as `del` and `ins` if it has changed."""
    was, is_ = _shown(before, name), _shown(after, name)
    if before.get(name) == after.get(name) and name in before and name in after:
        return was, is_
    return (
        format_html("<del>{}</del>", was) if name in before else was,
        format_html("<ins>{}</ins>", is_) if name in after else is_,
    )


def _shown(fields: Fields, name: str) -> SafeString:
    """A value for people: structures on lines of their own, nothing as a dash."""
    value = fields.get(name)
    if name not in fields or value in (None, "", [], {}):
        return format_html("{}", "–")
    if isinstance(value, dict | list) and value:
        text = json.dumps(value, indent=2, ensure_ascii=False)
        return format_html('<pre class="console-json">{}</pre>', text)
    if isinstance(value, bool):
        return format_html("{}", "yes" if value else "no")
    return format_html("{}", value)
