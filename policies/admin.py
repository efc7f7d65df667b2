"""The policies in the console: edit the draft, publish, look back, and see why.

What is edited is the draft; nothing of it acts until it is published on its own page.
"""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin, TabularInline
from unfold.decorators import action, display

from policies.authoring.drafts import paths_of_rules
from policies.authoring.forms import PolicyForm, PolicySetForm, PolicyTestForm, RuleForm

from . import pages
from .authoring import pap
from .models import (
    DecisionEntry,
    NamedList,
    Policy,
    PolicySet,
    PolicyTest,
    Rule,
    RuleHits,
    Version,
)

_LABELS = {"permit": "success", "deny": "danger", "indeterminate": "warning"}


def _link(page: str, pk: object, text: str) -> SafeString:
    """A link to the page of a row."""
    address = reverse(f"admin:{page}_change", args=[pk])
    return format_html('<a class="text-link" href="{}">{}</a>', address, text)


def _as_json(text: str) -> SafeString:
    """JSON on lines of its own; what is none, as it is."""
    try:
        shown = msgspec.json.format(text, indent=2)
    except msgspec.DecodeError:
        shown = text
    return format_html('<pre class="console-json">{}</pre>', shown)


def _to(name: str) -> HttpResponse:
    return redirect(f"admin:{name}")


class DraftAdmin(ModelAdmin):
    """What all parts of the draft offer."""

    actions_list: tuple[str, ...] = ("publish", "try_out")
    warn_unsaved_form = True

    class Media:
        js = ("policies/editor.js",)

    @action(description="Check and publish", url_path="publish", icon="publish")
    def publish(self, request: HttpRequest) -> HttpResponse:
        """To the page that publishes."""
        return _to("policies_publish")

    @action(description="Playground", url_path="try-out", icon="science")
    def try_out(self, request: HttpRequest) -> HttpResponse:
        """To the playground."""
        return _to("policies_playground")


class PartInline(TabularInline):
    """What stands below; each has a page of its own."""

    extra = 0
    readonly_fields = ("page",)

    @admin.display(description="")
    def page(self, obj: Any) -> str:
        """The way there, for keyboards and fingers too."""
        if obj.pk is None:
            return ""
        address = reverse(f"admin:policies_{obj._meta.model_name}_change", args=[obj.pk])
        return format_html('<a class="text-link" href="{}">Edit {}</a>', address, obj.key)


class PolicyInline(PartInline):
    """The policies of a set."""

    model = Policy
    fields = ("key", "priority", "algorithm", "note", "page")


class RuleInline(PartInline):
    """The rules of a policy; their conditions are edited on their own page."""

    model = Rule
    fields = ("key", "priority", "effect", "note", "page")


@admin.register(PolicySet)
class PolicySetAdmin(DraftAdmin):
    """Sets."""

    form = PolicySetForm
    change_form_after_template = "policies/guide.html"
    fields = ("key", "note", "mode", "priority", "algorithm", "target", "obligations", "advice",
              "parent")  # fmt: skip
    list_display = ("key", "mode", "priority", "algorithm", "policy_count", "note")
    list_editable = ("mode", "priority")
    list_filter = ("mode",)
    search_fields = ("key", "note")
    inlines = (PolicyInline,)
    actions_list = ("publish", "try_out", "bring", "take")

    def get_queryset(self, request: HttpRequest) -> QuerySet[PolicySet]:
        """With the number of policies."""
        return super().get_queryset(request).annotate(policy_total=Count("policies"))

    @admin.display(description="policies")
    def policy_count(self, obj: Any) -> int:
        """How many policies."""
        return int(obj.policy_total)

    @action(description="Import", url_path="import", icon="upload")
    def bring(self, request: HttpRequest) -> HttpResponse:
        """To the page that imports."""
        return _to("policies_import")

    @action(description="Export", url_path="export", icon="download")
    def take(self, request: HttpRequest) -> HttpResponse:
        """The draft as a file."""
        return _to("policies_export")

    def get_urls(self) -> list[URLPattern]:
        """The pages beside the lists."""
        view = self.admin_site.admin_view
        return [
            path("check-typed/", view(pages.check_typed), name="policies_check_typed"),
            path("import-file/", view(pages.import_page), name="policies_import"),
            path("export-file/", view(pages.export_file), name="policies_export"),
            path("shadow/", view(pages.shadow_report), name="policies_shadow"),
            path("replay/", view(pages.replay_page), name="policies_replay"),
            path("playground/", view(pages.playground), name="policies_playground"),
            *super().get_urls(),
        ]


@admin.register(Policy)
class PolicyAdmin(DraftAdmin):
    """Policies."""

    form = PolicyForm
    change_form_after_template = "policies/guide.html"
    fields = ("policy_set", "key", "note", "priority", "algorithm", "target", "obligations",
              "advice")  # fmt: skip
    list_display = ("key", "policy_set", "priority", "algorithm", "note")
    list_filter = ("policy_set",)
    list_select_related = ("policy_set",)
    search_fields = ("key", "note")
    inlines = (RuleInline,)


class HitFilter(admin.SimpleListFilter):
    """Rules that have decided, and rules that never have."""

    title = "hits"
    parameter_name = "hit"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The two kinds."""
        return [("never", "never hit"), ("yes", "hit")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Rule]) -> QuerySet[Rule]:
        """By the counts of all workers."""
        if self.value() not in ("never", "yes"):
            return queryset
        counted = set(RuleHits.objects.values_list("path", flat=True))
        hit = [pk for pk, path in paths_of_rules().items() if path in counted]
        return (
            queryset.filter(pk__in=hit) if self.value() == "yes" else queryset.exclude(pk__in=hit)
        )


@admin.register(Rule)
class RuleAdmin(DraftAdmin):
    """Rules."""

    form = RuleForm
    change_form_after_template = "policies/guide.html"
    fields = ("policy", "key", "note", "effect", "priority", "target", "condition", "obligations",
              "advice")  # fmt: skip
    list_display = ("key", "effect", "policy", "priority", "hits", "note")
    list_filter = ("effect", HitFilter, "policy__policy_set")
    list_select_related = ("policy__policy_set",)
    search_fields = ("key", "note")
    autocomplete_fields = ("policy",)

    @admin.display(description="hits")
    def hits(self, obj: Rule) -> str:
        """How often it has decided."""
        row = self._counts.get(self._paths.get(obj.pk, ""))
        return f"{row:,}" if row else "never"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Rule]:
        """Reads places and counts once for a page."""
        self._counts = dict(RuleHits.objects.values_list("path", "hits"))
        self._paths = paths_of_rules()
        return super().get_queryset(request)


@admin.register(NamedList)
class NamedListAdmin(DraftAdmin):
    """Named lists."""

    list_display = ("name", "note")
    search_fields = ("name", "members")


@admin.register(PolicyTest)
class PolicyTestAdmin(DraftAdmin):
    """Tests of the policies."""

    form = PolicyTestForm
    list_display = ("name", "is_active", "expected")
    list_editable = ("is_active",)

    @admin.display(description="expects")
    def expected(self, obj: PolicyTest) -> str:
        """The decision expected."""
        return str(obj.case.get("expect", "")) if isinstance(obj.case, dict) else ""


class ReadOnlyAdmin(ModelAdmin):
    """Rows that are written by the node; their lists follow."""

    list_before_template = "console/live_list.html"

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody adds."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody changes."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody deletes."""
        return False


@admin.register(Version)
class VersionAdmin(ReadOnlyAdmin):
    """What was published."""

    list_display = ("number", "published_at", "author", "note", "in_force", "act")
    list_select_related = ("author",)
    fields = ("number", "published_at", "author", "note", "changes")
    readonly_fields = ("changes",)
    actions_list = ("publish",)

    @action(description="Check and publish", url_path="publish", icon="publish")
    def publish(self, request: HttpRequest) -> HttpResponse:
        """To the page that publishes."""
        return _to("policies_publish")

    @admin.display(description="in force", boolean=True)
    def in_force(self, obj: Version) -> bool:
        """Whether it is the newest."""
        return obj.number == self._newest

    def get_queryset(self, request: HttpRequest) -> QuerySet[Version]:
        """Knows which is the newest."""
        newest = pap.current()
        self._newest = newest.number if newest else 0
        self._may_publish = request.user.has_perm("policies.add_version")
        return super().get_queryset(request)

    @admin.display(description="")
    def act(self, obj: Version) -> SafeString:
        """Export, and the way back to what is in force no longer."""
        export = reverse("admin:policies_export") + f"?version={obj.number}"
        links = format_html('<a class="text-link" href="{}">Export</a>', export)
        if obj.number == self._newest or not self._may_publish:
            return links
        back = reverse("admin:policies_roll_back", args=[obj.number])
        return format_html(
            '{} · <a class="text-link" href="{}">Roll back to this…</a>', links, back
        )

    @admin.display(description="changes against the version before")
    def changes(self, obj: Version) -> SafeString:
        """The difference to the version before."""
        before = Version.objects.filter(number__lt=obj.number).first()
        lines = {"difference": pap.difference(before, obj), "title": "Changes"}
        return render_to_string("policies/difference.html", lines)

    def get_urls(self) -> list[URLPattern]:
        """Publication and the way back."""
        view = self.admin_site.admin_view
        return [
            path("publish-draft/", view(pages.publish_page), name="policies_publish"),
            path("<int:number>/roll-back/", view(pages.roll_back), name="policies_roll_back"),
            *super().get_urls(),
        ]


@admin.register(DecisionEntry)
class DecisionEntryAdmin(ReadOnlyAdmin):
    """The decision log."""

    list_display = ("at", "verdict", "again", "type", "sender", "to", "username", "path", "shadow")
    list_filter = ("effect", "passes", "direction", "type", "version", "at")
    list_fullwidth = True
    search_fields = ("sender", "to", "username", "path")
    search_help_text = "Sender, recipient, user or rule"
    show_full_result_count = False
    fields = (
        "at", "verdict", "passes", "rule_link", "version_link", "direction", "type", "sender",
        "to", "username", "session_link", "shadow", "took", "errors", "message_text",
        "facts_text", "again",
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
        return _link("policies_rule", pk, obj.path) if pk else obj.path or "no rule"

    @admin.display(description="version")
    def version_link(self, obj: DecisionEntry) -> SafeString | str:
        """What was in force."""
        pk = Version.objects.filter(number=obj.version).values_list("pk", flat=True).first()
        return _link("policies_version", pk, str(obj.version)) if pk else "none"

    @admin.display(description="session")
    def session_link(self, obj: DecisionEntry) -> SafeString | str:
        """Who sent it."""
        try:
            return _link("msgnode_session", uuid.UUID(obj.session), obj.session)
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

    @admin.display(description="known beside it")
    def facts_text(self, obj: DecisionEntry) -> SafeString:
        """What was known beside the message."""
        return _as_json(msgspec.json.encode(obj.facts).decode())

    @admin.display(description="")
    def again(self, obj: DecisionEntry) -> SafeString:
        """To the playground, filled in."""
        address = reverse("admin:policies_playground") + f"?entry={obj.pk}"
        return format_html('<a href="{}">Try again</a>', address)


@admin.register(RuleHits)
class RuleHitsAdmin(ReadOnlyAdmin):
    """Hit counts."""

    list_display = ("path", "hits", "last_hit")
    search_fields = ("path",)
