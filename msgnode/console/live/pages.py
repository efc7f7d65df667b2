"""The pages of domains and of traces; what moves on them comes over the console's socket."""

from __future__ import annotations

from django.conf import settings
from django.contrib import admin
from django.contrib.admin.views.decorators import staff_member_required
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import urlencode

from msgnode.core.message_types import TYPES
from msgnode.core.record import Outcome

from .access import SEES
from .traces import LONGEST

FIELDS = (
    ("address", "Address, including those below it"),
    ("session", "Session id or runtime URL"),
    ("user", "User"),
    ("rule", "Rule that decided"),
    ("trace", "Trace id"),
)
CHOICES = (
    ("type", "Type", tuple(sorted(TYPES))),
    ("outcome", "Outcome", tuple(each.value for each in Outcome)),
)


@staff_member_required
@permission_required(SEES, raise_exception=True)
def traces(request: HttpRequest) -> HttpResponse:
    """Serve `/admin/traces/`; the query says what is watched."""
    said = {
        name: request.GET.get(name, "").strip()[:LONGEST]
        for name, *_ in (*FIELDS, *CHOICES)
        if request.GET.get(name, "").strip()
    }
    context = {
        **admin.site.each_context(request),
        "title": "Traces",
        "fields": [(name, title, said.get(name, "")) for name, title in FIELDS],
        "choices": [(name, title, words, said.get(name, "")) for name, title, words in CHOICES],
        "is_filtered": bool(said),
        "socket": f"{reverse('admin:index')}live/traces/?{urlencode(said)}",
        "may_try": request.user.has_perm("policies.view_policyset"),
        "may_see_decisions": request.user.has_perm("policies.view_decisionentry"),
    }
    return TemplateResponse(request, "console/traces.html", context)


@staff_member_required
@permission_required(SEES, raise_exception=True)
def domains(request: HttpRequest) -> HttpResponse:
    """Serve `/admin/domains/`: this node, its peers and its visitors around it."""
    context = {
        **admin.site.each_context(request),
        "title": "Map of domains",
        "domain": settings.DOMAIN,
        "is_joined": settings.FEDERATION != "off",
        "socket": f"{reverse('admin:index')}live/domains/",
        "may_see_peers": request.user.has_perm("msgnode.view_peer"),
    }
    return TemplateResponse(request, "console/domains.html", context)
