"""The map of domains: this node, its peers and its visitors around it, as it moves."""

from __future__ import annotations

from django.conf import settings
from django.contrib import admin
from django.contrib.admin.views.decorators import staff_member_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from .live.access import SEES


@staff_member_required
def domains(request: HttpRequest) -> HttpResponse:
    """Serve `/admin/domains/`."""
    if not request.user.has_perm(SEES):
        raise PermissionDenied
    context = {
        **admin.site.each_context(request),
        "title": "Map of domains",
        "domain": settings.DOMAIN,
        "is_joined": settings.FEDERATION != "off",
        "socket": f"{reverse('admin:index')}live/domains/",
        "may_see_peers": request.user.has_perm("msgnode.view_peer"),
    }
    return TemplateResponse(request, "console/domains.html", context)
