"""Who changed what: one AuditEntry a change, in the change's own transaction."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import RangeDateTimeFilter
from unfold.decorators import display

from msgnode.models import ADDRESS_LENGTH, AuditEntry

from .lists import ConsoleAdmin, WrittenByTheNode, begins_with

Fields = dict[str, Any]

_SECRET = frozenset({"token_hash", "epoch", "identity"})  # of sessions; auditing.py has others


def note(actor: str, action: str, object_: object, before: Fields, after: Fields) -> None:
    """Write down a change that somebody makes."""
    AuditEntry.objects.create(
        actor=actor[:150],
        action=action,
        object=str(object_)[:ADDRESS_LENGTH],
        before=_plain(before),
        after=_plain(after),
    )


def fields_of(row: Model) -> Fields:
    """The fields of a row by name, without secrets."""
    fields = [field for field in row._meta.concrete_fields if field.name not in _SECRET]
    return {field.name: field.value_from_object(row) for field in fields}


def _plain(fields: Fields) -> Fields:
    return {name: value if _is_json(value) else str(value) for name, value in fields.items()}


def _is_json(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str | list | dict)


class AuditedAdmin(ConsoleAdmin):
    """An admin class whose changes, audited like all (auditing.py), are made known to the workers
    by `publish`."""

    def publish(self) -> None:
        """Tell the workers that the rows have changed. Takes part in the transaction."""

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        self.publish()

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        super().delete_model(request, obj)
        self.publish()

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        super().delete_queryset(request, queryset)
        self.publish()


@admin.register(AuditEntry)
class AuditEntryAdmin(WrittenByTheNode):
    list_display = ("at", "actor", "action", "object", "what")
    list_filter = (("at", RangeDateTimeFilter),)
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

    @display(description="what changed")
    def changes(self, entry: AuditEntry) -> SafeString | str:
        return changes_table(entry.before, entry.after) or "nothing was written down"


def changes_table(before: Fields, after: Fields) -> SafeString | str:
    """One line a field, before and after; what changed is marked, what did not stands last."""
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
    """What stood there and what stands there, as `del` and `ins` where it has changed."""
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
