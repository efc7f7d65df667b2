"""The button "New secret" on the page of a row that has one, such as an API key."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from unfold.decorators import action

from .acted_meanwhile import is_as_shown
from .confirm import ask
from .lists import AuditedAdmin, page_of


class NewSecretAdmin(AuditedAdmin):
    """Pages with that button; `has_rotate_permission` says who has it.

    Attributes:
        overlap: how long the former secret works.
    """

    overlap: timedelta
    actions_detail = ("rotate",)

    def show_new_secret(self, request: HttpRequest, row: Any) -> None:
        """Give a row a new secret, and show it."""
        raise NotImplementedError

    @action(description="New secret", url_path="rotate", permissions=["rotate"], icon="autorenew")
    @transaction.atomic  # the row stays locked from the look at it until it has its new secret
    def rotate(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Asks first; the current secret works for a while longer."""
        row = self.row_of_page(request, object_id)
        if request.method == "POST" and is_as_shown(self, request, row):
            self.show_new_secret(request, row)
            return redirect(page_of(row))
        hours = round(self.overlap.total_seconds() / 3600)
        warning = f"The current secret works for another {hours} hours; an earlier one stops now."
        return ask(
            self,
            request,
            self.model._default_manager.filter(pk=row.pk),
            action="rotate",
            title="Create a new secret",
            warning=warning,
        )
