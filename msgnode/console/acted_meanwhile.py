"""Two people who act on one list: who acts on a row that is no longer as it was shown is told.

An admin class names in `acts_on` the columns that a person decides by ("*": all of them). A mark of
them stands beside the row's box; where one that was ticked has changed since the list was made, the
action does nothing and says so, and the list is shown anew. What the node itself changes all the
time is no such column. Rows of other pages, which were not shown, have no marks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from django.contrib import messages
from django.contrib.admin import AdminSite, ModelAdmin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db import router, transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponseRedirect
from django.utils.crypto import salted_hmac
from django.utils.html import format_html

FIELD = "shown"
"""How the hidden fields begin that the marks are in; the key of the row follows."""
_NAMED = 5


def watch(site: AdminSite) -> None:
    """Have the actions of every list look whose admin class says what they are decided by."""
    for model_admin in site._registry.values():
        if columns := _columns(model_admin):
            pages: Any = model_admin
            pages.action_checkbox = _with_mark(model_admin, columns)
            pages.response_action = _looking(model_admin, columns)


def _columns(model_admin: ModelAdmin[Any]) -> tuple[str, ...]:
    named = tuple(getattr(model_admin, "acts_on", ()))
    if named != ("*",):
        return named
    return tuple(field.attname for field in model_admin.opts.concrete_fields)


def _with_mark(model_admin: ModelAdmin[Any], columns: Sequence[str]) -> Callable[[Model], str]:
    action_checkbox = model_admin.action_checkbox

    @wraps(action_checkbox)
    def box(row: Model) -> str:
        mark = _mark([getattr(row, name) for name in columns])
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
                if _mark([getattr(row, name) for name in columns]) != shown[str(row.pk)]
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


def _mark(values: Sequence[Any]) -> str:
    return salted_hmac(__name__, json.dumps(values, default=str)).hexdigest()[:12]
