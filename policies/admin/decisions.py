"""Why: the decision log, and how often each rule has decided."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import display

from msgnode.core.message_types import TYPES
from policies import pages
from policies.authoring.drafts import paths_of_rules
from policies.models import DecisionEntry, RuleHits, Version

from .links import ReadOnlyAdmin, link

_LABELS = {"permit": "success", "deny": "danger", "indeterminate": "warning"}
EFFECTS = (*_LABELS, "notApplicable")
RECENT = 50
"""Versions that are offered to filter by."""


def _as_json(text: str) -> SafeString:
    return format_html('<pre class="console-json">{}</pre>', pages.pretty(text))


class _Offered(admin.SimpleListFilter):
    """Values that are known without asking the log, which is long."""

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[DecisionEntry]
    ) -> QuerySet[DecisionEntry]:
        """The rows with the value."""
        if not self.value():
            return queryset
        return queryset.filter(**{str(self.parameter_name): self.value()})


class EffectFilter(_Offered):
    """By the decision."""

    title = parameter_name = "effect"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """What decisions there are."""
        return [(effect, effect) for effect in EFFECTS]


class TypeFilter(_Offered):
    """By the type of the message."""

    title = parameter_name = "type"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """What types there are."""
        return [(type_, type_) for type_ in sorted(TYPES)]


class VersionFilter(_Offered):
    """By what was in force."""

    title = parameter_name = "version"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The newest versions."""
        numbers = Version.objects.values_list("number", flat=True)[:RECENT]
        return [(str(number), str(number)) for number in numbers]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[DecisionEntry]
    ) -> QuerySet[DecisionEntry]:
        """The rows with the number."""
        is_number = (self.value() or "").isdecimal() and len(self.value() or "") < 10
        return super().queryset(request, queryset) if is_number else queryset


@admin.register(DecisionEntry)
class DecisionEntryAdmin(ReadOnlyAdmin):
    """The decision log."""

    list_display = ("at", "verdict", "type", "sender", "to", "username", "path", "shadow")
    list_filter = (EffectFilter, "passes", TypeFilter, VersionFilter, "at")
    list_fullwidth = True
    change_form_outer_before_template = "policies/why.html"
    search_fields = ("sender", "to", "username", "path")
    search_help_text = "Sender, recipient, user or rule"
    fields = (
        "at", "verdict", "passes", "rule_link", "version_link", "direction", "type", "sender",
        "to", "username", "session_link", "shadow", "took", "errors", "message_text",
        "facts_text",
    )  # fmt: skip
    readonly_fields = fields

    def quick_search(self, queryset: QuerySet[DecisionEntry], term: str) -> QuerySet[DecisionEntry]:
        """What a rule has decided, for the search over everything: by an index."""
        return queryset.filter(path=term)

    @display(description="decision", label=_LABELS, ordering="effect")
    def verdict(self, obj: DecisionEntry) -> str:
        """The decision, in colour."""
        return obj.effect

    @admin.display(description="decided by")
    def rule_link(self, obj: DecisionEntry) -> SafeString | str:
        """The rule in the draft, if it still stands there."""
        pk = next((pk for pk, path in paths_of_rules().items() if path == obj.path), None)
        return link("policies_rule", pk, obj.path) if pk else obj.path or "no rule"

    @admin.display(description="version")
    def version_link(self, obj: DecisionEntry) -> SafeString | str:
        """What was in force."""
        pk = Version.objects.filter(number=obj.version).values_list("pk", flat=True).first()
        return link("policies_version", pk, str(obj.version)) if pk else "none"

    @admin.display(description="session")
    def session_link(self, obj: DecisionEntry) -> SafeString | str:
        """Who sent it."""
        try:
            return link("msgnode_session", uuid.UUID(obj.session), obj.session)
        except ValueError:
            return obj.session or "none"

    @admin.display(description="took")
    def took(self, obj: DecisionEntry) -> str:
        """How long the decision took."""
        return f"{obj.microseconds:,.0f} µs"

    @admin.display(description="message")
    def message_text(self, obj: DecisionEntry) -> SafeString:
        """The message as it was kept."""
        return _as_json(obj.message)

    @admin.display(description="other attributes")
    def facts_text(self, obj: DecisionEntry) -> SafeString:
        """What was known beside the message."""
        return _as_json(msgspec.json.encode(obj.facts).decode())

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """With the tree of the decision."""
        entry = self.get_object(request, object_id)
        found = pages.why(entry) if entry is not None else {}
        context = {**(extra_context or {}), "why": found}
        return super().change_view(request, object_id, form_url, context)


@admin.register(RuleHits)
class RuleHitsAdmin(ReadOnlyAdmin):
    """Hit counts."""

    list_display = ("path", "hits", "last_hit")
    search_fields = ("path",)
