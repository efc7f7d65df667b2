"""Users change their own password at `/login/password/`: users of the domain, and operators.

The old password passes the brakes of a log-in: wrong ones count as failed log-ins, shut the name
for the address and stand among them. The browser that changes it stays logged in; every other one,
the user's tokens and what they had bound end at once.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth import authenticate
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.views import PasswordChangeDoneView, PasswordChangeView
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import reverse_lazy
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache

from .login import too_many_tries
from .revocation import end_logins


class OwnPasswordForm(PasswordChangeForm):
    """Asks for the old password as a log-in does."""

    def __init__(self, *args: Any, request: HttpRequest, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._request = request

    def clean_old_password(self) -> str:
        """Refuse a wrong password, counted as a log-in that failed."""
        given: str = self.cleaned_data["old_password"]
        name = self.user.get_username()
        if authenticate(self._request, username=name, password=given) is None:
            text = self.error_messages["password_incorrect"]
            raise forms.ValidationError(text, code="password_incorrect")
        return given


@method_decorator(never_cache, name="dispatch")
class PasswordChange(PasswordChangeView):
    """`/login/password/`: who is not logged in is asked to first."""

    template_name = "access/password.html"
    form_class = OwnPasswordForm
    success_url = reverse_lazy("password-changed")

    def get_form_kwargs(self) -> dict[str, Any]:
        """The form needs the request, because tries are counted by address."""
        return {**super().get_form_kwargs(), "request": self.request}

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Change it, unless too many tries have failed."""
        return too_many_tries(request) or super().post(request, *args, **kwargs)

    @transaction.atomic
    def form_valid(self, form: Any) -> HttpResponse:
        """Change it, and end the tokens and the sessions that began with the old one."""
        response = super().form_valid(form)
        end_logins(form.user, close=True)
        return response


class PasswordChanged(PasswordChangeDoneView):
    """`/login/password/changed/`."""

    template_name = "access/password_changed.html"
