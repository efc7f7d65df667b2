"""What was published, and the ways to publish and to go back."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import action

from policies import pages
from policies.authoring import pap, standing
from policies.models import Version

from .links import ReadOnlyAdmin, to


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
        return to("policies_publish")

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

    @admin.display(description="actions")
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

    @admin.display(description="changes since the previous version")
    def changes(self, obj: Version) -> SafeString:
        """The difference to the version before."""
        before = Version.objects.filter(number__lt=obj.number).first()
        lines = {"difference": pap.difference(before, obj), "title": "Changes",
                 "changes": standing.changes(before, obj)}  # fmt: skip
        return render_to_string("policies/difference.html", lines)

    def get_urls(self) -> list[URLPattern]:
        """Publication and the way back."""
        view = self.admin_site.admin_view
        return [
            path("publish-draft/", view(pages.publish_page), name="policies_publish"),
            path("<int:number>/roll-back/", view(pages.roll_back), name="policies_roll_back"),
            *super().get_urls(),
        ]
