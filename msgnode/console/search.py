"""The global search of the console: the box that the key / opens.

Rules
- Only what the user may see is searched.
- A term is searched as each list does it, by the beginning of an indexed column, or whole; a list
  that may read many rows has a `quick_search` that does not. At most SHOWN of a kind are shown; the
  list itself has the rest.
- Results are never cached: a session that ended a second ago is not found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.contrib.admin.views.decorators import staff_member_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import urlencode
from unfold.dataclasses import SearchResult

SHOWN = 5
LONGEST = 600
SHORTEST = 2


@dataclass(frozen=True, slots=True)
class Place:
    """A list that is looked through: its model, what its rows are called, and their icon."""

    model: str
    title: str
    icon: str


PLACES = (
    Place("msgnode.session", "session", "cable"),
    Place("msgnode.allocation", "allocated address", "tag"),
    Place("msgnode.subscription", "subscription", "podcasts"),
    Place("registry.hyperty", "hyperty", "apps"),
    Place("registry.dataobject", "data object", "dataset"),
    Place("registry.user", "user of the registry", "badge"),
    Place("registry.runtime", "runtime of the registry", "devices"),
    Place("policies.rule", "rule", "rule"),
    Place("policies.policy", "policy", "rule_folder"),
    Place("policies.policyset", "policy set", "policy"),
    Place("policies.namedlist", "named list", "list"),
    Place("policies.decisionentry", "decision", "gavel"),
    Place("msgnode.peermessage", "message for a peer", "outgoing_mail"),
    Place("msgnode.storedmessage", "stored message", "inventory_2"),
    Place("msgnode.ban", "ban", "block"),
    Place("msgnode.alarm", "alarm", "notifications"),
    Place("msgnode.auditentry", "change", "history"),
    Place("auth.user", "account", "person"),
)


@staff_member_required
def search(request: HttpRequest) -> HttpResponse:
    """Results while the user types: pages of the menu, then rows."""
    term = request.GET.get("s", "").strip()
    if len(term) < SHORTEST or len(term) > LONGEST or "\x00" in term:
        return HttpResponse()
    began = monotonic()
    found = [*pages_found(request, term), *rows_found(request, term)]
    pages = Paginator(found, max(1, len(found)))
    is_box = "extended" in request.GET
    template = "command_results" if is_box else "search_results"
    context = {
        "results": pages.page(1),
        "page_obj": pages,
        "page_counter": 0,
        "execution_time": monotonic() - began,
        "command_show_history": False,
    }
    return TemplateResponse(
        request, f"unfold/helpers/{template}.html", context, headers={"HX-Trigger": "search"}
    )


def pages_found(request: HttpRequest, term: str) -> Iterator[SearchResult]:
    """Pages of the menu with the term in their title."""
    for group in settings.UNFOLD["SIDEBAR"]["navigation"]:
        for item in group["items"]:
            may_see: Callable[[HttpRequest], bool] = item.get("permission", lambda _: True)
            if term.lower() in item["title"].lower() and may_see(request):
                where = group.get("title", "Console")
                yield SearchResult(item["title"], where, str(item["link"]), item["icon"])


def rows_found(request: HttpRequest, term: str) -> Iterator[SearchResult]:
    """Rows of the lists that the user may see."""
    by_label = {model._meta.label_lower: each for model, each in admin.site._registry.items()}
    for place in PLACES:
        model_admin = by_label.get(place.model)
        if model_admin is not None and model_admin.has_view_permission(request):
            yield from _rows_of(place, model_admin, request, term)


def _rows_of(
    place: Place, model_admin: Any, request: HttpRequest, term: str
) -> Iterable[SearchResult]:
    rows = model_admin.get_queryset(request)
    if hasattr(model_admin, "quick_search"):
        rows = model_admin.quick_search(rows, term)
    else:
        rows, _ = model_admin.get_search_results(request, rows, term)
    found = list(rows[: SHOWN + 1])
    name = place.model.replace(".", "_")
    for row in found[:SHOWN]:
        link = reverse(f"admin:{name}_change", args=[row.pk])
        yield SearchResult(str(row)[:200], place.title, link, place.icon)
    if len(found) > SHOWN:
        link = f"{reverse(f'admin:{name}_changelist')}?{urlencode({'q': term})}"
        yield SearchResult(f"More of “{term[:60]}”", f"every {place.title}", link, "more_horiz")
