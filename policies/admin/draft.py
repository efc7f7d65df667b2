"""The draft: sets, policies, rules, named lists and tests, each with its page."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import Count, QuerySet
from django.forms import Script
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from unfold.admin import ModelAdmin, TabularInline
from unfold.decorators import action

from policies import pages, typed_pages
from policies.authoring import standing
from policies.authoring.drafts import paths_of_rules, policy_of_the_console, rule_out
from policies.authoring.forms import PolicyForm, PolicySetForm, PolicyTestForm, RuleForm
from policies.models import NamedList, Policy, PolicySet, PolicyTest, Rule, RuleHits

from .links import link, to


class DraftAdmin(ModelAdmin):
    """What all parts of the draft offer."""

    actions_list: tuple[str, ...] = ("publish", "try_out")
    list_before_template = "policies/draft.html"
    acts_on = ("*",)  # of msgnode.console.acted_meanwhile
    warn_unsaved_form = True

    class Media:
        js = ("policies/editor.js", Script("policies/builder.js", type="module"))

    @action(description="Check and publish", url_path="publish", icon="publish")
    def publish(self, request: HttpRequest) -> HttpResponse:
        """To the page that publishes."""
        return to("policies_publish")

    @action(description="Playground", url_path="try-out", icon="science")
    def try_out(self, request: HttpRequest) -> HttpResponse:
        """To the playground."""
        return to("policies_playground")


class PartInline(TabularInline):
    """What stands below; each has a page of its own."""

    extra = 0
    readonly_fields = ("page",)

    @admin.display(description="page")
    def page(self, obj: Any) -> str:
        """The way there, for keyboards and fingers too."""
        if obj.pk is None:
            return ""
        return link(f"policies_{obj._meta.model_name}", obj.pk, f"Edit {obj.key}")


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
        return to("policies_import")

    @action(description="Export", url_path="export", icon="download")
    def take(self, request: HttpRequest) -> HttpResponse:
        """The draft as a file."""
        return to("policies_export")

    def get_urls(self) -> list[URLPattern]:
        """The pages beside the lists."""
        view = self.admin_site.admin_view
        return [
            path("check-typed/", view(typed_pages.check_typed), name="policies_check_typed"),
            path("say-typed/", view(typed_pages.say_typed), name="policies_say_typed"),
            path("try-typed/", view(typed_pages.try_typed), name="policies_try_typed"),
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
    actions_detail = ("build",)

    def has_build_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Who may add rules."""
        return request.user.has_perm("policies.add_rule")

    @action(description="Build a rule", url_path="build-rule", permissions=["build"], icon="add")
    def build(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """To the form of a rule of this policy."""
        return redirect(f"{reverse('admin:policies_rule_add')}?policy={object_id}")


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
    change_form_outer_before_template = "policies/standing.html"
    list_display = ("key", "effect", "in_force", "policy", "priority", "hits", "note")
    list_filter = ("effect", HitFilter, "policy__policy_set")
    list_select_related = ("policy__policy_set",)
    search_fields = ("key", "note")
    autocomplete_fields = ("policy",)

    def save_model(self, request: HttpRequest, obj: Rule, form: Any, change: bool) -> None:
        """A rule without a policy goes to that of the console, which only reports at first."""
        if form.cleaned_data.get("policy") is None and not change:
            obj.policy = policy_of_the_console()
        super().save_model(request, obj, form, change)
        leads_away = {"_save"} if change else {"_addanother", "_popup"}
        if leads_away & set(request.POST):  # else the page that follows says it
            messages.info(request, standing.standing_of(obj).words)

    def response_add(self, request: HttpRequest, obj: Rule, post_url_continue: Any = None) -> Any:
        """To its page, which says what is in force and has the button."""
        if set(request.POST) & {"_addanother", "_popup"}:
            return super().response_add(request, obj, post_url_continue)
        messages.success(request, f"The rule {obj.key} is saved, in the draft.")
        return redirect("admin:policies_rule_change", obj.pk)

    def get_urls(self) -> list[URLPattern]:
        """With the page that enforces one rule and takes it back."""
        force = self.admin_site.admin_view(pages.rule_force)
        return [
            path("<int:pk>/force/", force, name="policies_rule_force"),
            *super().get_urls(),
        ]

    @admin.display(description="in force")
    def in_force(self, obj: Rule) -> str:
        """What it does now."""
        return self._standings.of(self._paths.get(obj.pk, ""), rule_out(obj)).short

    @admin.display(description="hits")
    def hits(self, obj: Rule) -> str:
        """How often it has decided."""
        row = self._counts.get(self._paths.get(obj.pk, ""))
        return f"{row:,}" if row else "never"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Rule]:
        """Reads places and counts once for a page."""
        self._counts = dict(RuleHits.objects.values_list("path", "hits"))
        self._paths = paths_of_rules()
        self._standings = standing.Standings()
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
