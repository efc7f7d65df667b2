"""Confirmation pages, which show what an action on many rows is about to do.

Only what such a page has listed is acted on: it posts the keys of its rows, and marks of those
whose admin class says what is decided by (acted_meanwhile.py).
"""

from __future__ import annotations

from typing import Any, Protocol

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse

from .acted_meanwhile import marks

AT_ONCE = 500
"""Rows an action takes: the page that asks names each, and a form has an end."""
_LISTED = 20


class Admin(Protocol):
    """The required interface of an admin class."""

    admin_site: Any
    opts: Any


def too_many(request: HttpRequest, queryset: QuerySet[Any]) -> bool:
    """Whether more rows are selected than an action allows; shows a message if so."""
    if queryset.order_by()[: AT_ONCE + 1].count() <= AT_ONCE:
        return False
    messages.error(request, f"Select at most {AT_ONCE} at once; filter the list first.")
    return True


def tell_gone(request: HttpRequest, done: int) -> None:
    """Say how many of the rows that were confirmed have not been acted on, if any."""
    gone = len(set(request.POST.getlist(ACTION_CHECKBOX_NAME))) - done
    if gone > 0:
        text = f"{gone} of those that you have confirmed had ended, or left the list, meanwhile."
        messages.warning(request, text)


def is_confirmed(request: HttpRequest) -> bool:
    """Whether the page that asks was answered."""
    return request.POST.get("confirmed") == "yes"


def ask(
    admin: Admin,
    request: HttpRequest,
    queryset: QuerySet[Any],
    *,
    action: str,
    title: str,
    warning: str,
    form: forms.Form | None = None,
    button: str = "",
) -> TemplateResponse:
    """The page that asks. Confirmed, it posts the action again with `confirmed` and the form.

    An action that changes nothing has a word for its `button`; else that has the title, and is red.
    """
    rows = list(queryset[:AT_ONCE])
    context = {
        **admin.admin_site.each_context(request),
        "opts": admin.opts,
        "title": title,
        "warning": warning,
        "form": form,
        "button": button,
        "rows": rows[:_LISTED],
        "others": max(0, len(rows) - _LISTED),
        "keys": [row.pk for row in rows],
        "key_name": ACTION_CHECKBOX_NAME,
        "marks": marks(admin, rows),
        "action": action,
        "back": request.get_full_path(),
    }
    return TemplateResponse(request, "console/confirm.html", context)
