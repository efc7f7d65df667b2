"""Two people who act on one row: who acts on what is no longer as it was shown is told.

An admin class names in `acts_on` the columns that a person decides by ("*": all of them, and what
is deleted with the row). What the node itself changes all the time is no such column.

- A mark of the columns stands beside the row's box in a list, and on the page that asks for
  confirmation (confirm.py). Where one that was ticked or confirmed has changed since, the action
  does nothing and says so, and the list or page is shown anew.
- The page that asks before a deletion has a mark of all that it lists, and is shown anew if that
  has changed.

Rows of other pages, which were not shown, have no marks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

from django.contrib import messages
from django.contrib.admin import AdminSite, ModelAdmin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db import connections, router, transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponseRedirect, QueryDict
from django.utils.crypto import salted_hmac
from django.utils.html import format_html

FIELD = "shown"
"""How the hidden fields begin that the marks are in; the key of the row follows."""
LISTED = "listed"
"""The hidden field with the mark of what a page lists that asks before a deletion."""
_NAMED = 5


def watch(site: AdminSite) -> None:
    """Have every list and every deletion look whose admin class says what they are decided by."""
    for model_admin in site._registry.values():
        if columns := _columns(model_admin):
            pages: Any = model_admin
            pages.action_checkbox = _with_mark(model_admin, columns)
            pages.response_action = _looking(model_admin, columns)
            pages.get_deleted_objects = _listing(model_admin, columns)


def marks(model_admin: Any, rows: Iterable[Model]) -> dict[str, str]:
    """The hidden fields of a page that asks about these rows: a mark of each as it is shown."""
    columns = _columns(model_admin)
    return {f"{FIELD}-{row.pk}": _mark_of(row, columns) for row in rows} if columns else {}


def is_as_shown(model_admin: Any, request: HttpRequest, row: Model) -> bool:
    """Whether a row is still as the page showed it that was posted; says so if it is not."""
    shown = request.POST.get(f"{FIELD}-{row.pk}")
    if not shown or shown == _mark_of(row, _columns(model_admin)):
        return True
    text = f"Changed since you opened the page: {row}. Nothing was done. Here it is as it is now."
    messages.error(request, text)
    return False


def _columns(model_admin: Any) -> tuple[str, ...]:
    named = tuple(getattr(model_admin, "acts_on", ()))
    if named != ("*",):
        return named
    return tuple(field.attname for field in model_admin.opts.concrete_fields)


def _with_mark(model_admin: ModelAdmin[Any], columns: Sequence[str]) -> Callable[[Model], str]:
    action_checkbox = model_admin.action_checkbox

    @wraps(action_checkbox)
    def box(row: Model) -> str:
        mark = _mark_of(row, columns)
        hidden = '<input type="hidden" name="{}-{}" value="{}">'
        return action_checkbox(row) + format_html(hidden, FIELD, row.pk, mark)

    return box


def _looking(model_admin: ModelAdmin[Any], columns: Sequence[str]) -> Callable[..., Any]:
    response_action = model_admin.response_action
    model = model_admin.model

    def respond(request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        ticked = request.POST.getlist(ACTION_CHECKBOX_NAME)
        shown = {key: mark for key in ticked if (mark := request.POST.get(f"{FIELD}-{key}"))}
        with transaction.atomic(using=router.db_for_write(model)):
            rows = queryset.order_by("pk").filter(pk__in=list(shown))
            keys = list(rows.values_list("pk", flat=True))
            locked = model._base_manager.select_for_update().order_by("pk")
            list(locked.filter(pk__in=keys).values_list("pk"))
            others = [
                str(row) for row in model._base_manager.filter(pk__in=keys)
                if _mark_of(row, columns) != shown[str(row.pk)]
            ]  # fmt: skip
            if not others:
                return response_action(request, queryset)
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        messages.error(
            request,
            f"Changed since you opened the list: {', '.join(others[:_NAMED])}{more}. Nothing was "
            "done. Here it is as it is now; do it again if you still mean it.",
        )
        return HttpResponseRedirect(request.get_full_path())

    return respond


def _listing(model_admin: ModelAdmin[Any], columns: Sequence[str]) -> Callable[..., Any]:
    get_deleted_objects = model_admin.get_deleted_objects
    model = model_admin.model
    has_parts = tuple(getattr(model_admin, "acts_on", ())) == ("*",)

    def get(objs: Sequence[Any], request: HttpRequest) -> tuple[Any, ...]:
        rows = model._base_manager.filter(pk__in=[each.pk for each in objs]).order_by("pk")
        if request.method == "POST" and connections[router.db_for_write(model)].in_atomic_block:
            rows = rows.select_for_update()
        marked = [_mark_of(row, columns) for row in rows]
        found = get_deleted_objects(objs, request)
        mark = _mark([marked, found[0] if has_parts else ""])
        request.listed = mark  # type: ignore[attr-defined]  # for the template of the page
        if request.POST.get("post") and request.POST.get(LISTED, mark) != mark:
            request.POST = QueryDict()  # so that it asks again
            messages.error(
                request,
                "Changed since you opened the page. Nothing was deleted. Here is what would be "
                "deleted now.",
            )
        return found

    return get


def _mark_of(row: Model, columns: Sequence[str]) -> str:
    return _mark([getattr(row, name) for name in columns])


def _mark(values: Sequence[Any]) -> str:
    return salted_hmac(__name__, json.dumps(values, default=str)).hexdigest()[:12]
