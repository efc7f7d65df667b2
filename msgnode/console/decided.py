"""Pages of rows of which a version is approved: peers with stubs, connectors with scripts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString

from msgnode.core.errors import Conflict

from .confirm import ask, is_confirmed
from .lists import AuditedAdmin, cut, in_short


def for_each(action: str, label: str) -> Any:
    """An action of the list that does one thing with each row that is selected."""

    @admin.action(description=label, permissions=["change"])
    def run(self: DecidedAdmin, request: HttpRequest, rows: QuerySet[Any]) -> None:
        for row in rows:
            self.act(request, action, row)

    return run


class _Which(forms.Form):
    """Which version may run."""

    digest = forms.ChoiceField(widget=forms.RadioSelect)


class DecidedAdmin(AuditedAdmin):
    """Such rows. `decisions` is the module that does what is decided: peer_actions, for peers."""

    decisions: Any

    @admin.display(description="decision")
    def what_was_decided(self, row: Any) -> str:
        """The decision in words."""
        return str(self.decisions.decision_word(row))

    @admin.display(description="last error", ordering="last_error")
    def error_in_short(self, row: Any) -> SafeString:
        """The last error, for the list."""
        return in_short(row.last_error, cut(row.last_error))

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> tuple[Any, ...]:
        """Delete dependent rows with a row, without asking for the right on each."""
        deleted, counts, _, protected = super().get_deleted_objects(objs, request)
        return deleted, counts, set(), protected

    def act(self, request: HttpRequest, action: str, row: Any, digest: str = "") -> None:
        """Do something with a row, and say what was done, or why it cannot be."""
        try:
            done = self.decisions.act(action, row, request.user.get_username(), digest)
        except Conflict as why:
            messages.error(request, str(why))
        else:
            messages.success(request, done)

    def let_another_run(
        self,
        request: HttpRequest,
        rows: QuerySet[Any],
        what: str,
        label: str,
        found: Iterable[tuple[str, str]],
    ) -> HttpResponse | None:
        """Ask which of the versions `found` of the one row may run; approve what is chosen."""
        form = _Which(request.POST if is_confirmed(request) else None)
        field: Any = form.fields["digest"]
        field.label, field.choices, field.initial = label, list(found), rows[0].approved_digest
        if form.is_valid():
            self.act(request, "approve", rows[0], form.cleaned_data["digest"])
            return None
        return ask(
            self, request, rows, action="go_back", title=f"Let another {what} run",
            warning=f"It replaces the running {what} if it can be loaded.", form=form,
        )  # fmt: skip
