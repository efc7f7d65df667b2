"""Ending sessions from the console: the question, and what follows the answer."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from unfold.widgets import UnfoldAdminRadioSelectWidget, UnfoldAdminTextInputWidget

from msgnode.models import Session

from . import operator_actions
from .confirm import Admin, ask, tell_gone, too_many

RETURN, STAY_AWAY = "return", "stay-away"


class EndForm(forms.Form):
    """How sessions are ended: whether their stubs may return."""

    then = forms.ChoiceField(
        label="Close code for the runtimes",
        choices=(
            (STAY_AWAY, "4403: stubs do not reconnect by themselves"),
            (RETURN, "3001: stubs reconnect and open a new session"),
        ),
        initial=STAY_AWAY,
        widget=UnfoldAdminRadioSelectWidget(radio_style=2),
    )
    reason = forms.CharField(
        label="Reason",
        max_length=100,
        required=False,
        help_text="Shown in the audit log and on the session’s page, not sent to the runtime.",
        widget=UnfoldAdminTextInputWidget(),
    )


def end(admin: Admin, request: HttpRequest, sessions: QuerySet[Session]) -> HttpResponse | None:
    """Ask for confirmation, or end the sessions once it is given; None returns to the list."""
    if too_many(request, sessions):
        return None
    is_answer = request.POST.get("confirmed") == "yes"
    form = EndForm(request.POST if is_answer else None)
    if not is_answer or not form.is_valid():
        return ask(
            admin,
            request,
            sessions,
            action="end",
            title="End sessions",
            warning="Their sockets are closed, and their addresses and subscriptions are freed.",
            form=form,
        )
    answer: dict[str, Any] = form.cleaned_data
    ended = operator_actions.end_sessions(
        sessions,
        request.user.get_username(),
        answer["reason"],
        may_return=answer["then"] == RETURN,
    )
    messages.success(request, f"{ended} ended." if ended != 1 else "The session is ended.")
    tell_gone(request, ended)
    return None
