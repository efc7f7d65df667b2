"""The pages of one's own log-in, at `/login/own/`: second factors, and browsers that are logged in.

What changes a factor asks first whether it is still the same person, RECENT_MINUTES after the last
proof: a second factor where there is one, else the password, else the company's log-in. Whose role
asks for a second factor and who has none sets one up here before being logged in.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.views.decorators import staff_member_required
from django.contrib.auth import authenticate
from django.contrib.auth.decorators import permission_required
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session as BrowserSession
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from msgnode.core.digest import digest
from msgnode.identity import second_factor
from msgnode.identity.provider import login as own_login
from msgnode.identity.provider.login import CONFIRMED, LOG_IN, SECOND_FACTOR, is_recent
from msgnode.identity.provider.revocation import browser_sessions
from msgnode.identity.second_factor import Wrong
from msgnode.models import OperatorIdentity

from . import roles
from .actor import acting_as
from .audit import note
from .log_in import add_passkey, ask_for_factor, own_url, passkey_offer, try_factor

SECRET = "new_app_secret"  # noqa: S105 (a key of the session)
READ = 5_000
"""Log-ins of browsers that a page looks through."""
_CONFIRM = "Confirm that it is you"

View = Callable[..., HttpResponse]


def _of_somebody(view: Callable[[HttpRequest, User], HttpResponse]) -> View:
    """A page for who is logged in, or must set up a factor to be."""

    @never_cache
    @wraps(view)
    def answer(request: HttpRequest) -> HttpResponse:
        if request.user.is_authenticated:
            return view(request, request.user)
        found = own_login.pending(request)
        if found is None or second_factor.has_factor(found[0]):
            return redirect(f"{reverse('login')}?{urlencode({'next': request.path})}")
        with acting_as(found[0].get_username()):
            return view(request, found[0])

    return answer


def _confirmed(view: Callable[[HttpRequest, User], HttpResponse]) -> View:
    """A page for who has lately proved to be there."""

    @_of_somebody
    @wraps(view)
    def answer(request: HttpRequest, user: User) -> HttpResponse:
        what = SECOND_FACTOR if second_factor.has_factor(user) else CONFIRMED
        if request.user.is_authenticated and not is_recent(request, what):
            return redirect(confirm_url(reverse("own-log-in")))
        return view(request, user)

    return answer


def confirm_url(next_url: str) -> str:
    """Where a second factor is asked for again, and then the page of this URL is shown."""
    return f"{reverse('confirm')}?{urlencode({'next': next_url})}"


def factor_first(request: HttpRequest, next_url: str) -> HttpResponse | None:
    """What is answered to who has not lately given a second factor; None to who has."""
    if is_recent(request, SECOND_FACTOR):
        return None
    if request.user.is_authenticated and second_factor.has_factor(request.user):
        return redirect(confirm_url(next_url))
    text = "This takes a second factor. Set one up, then come back."
    context = {"title": "A second factor is needed", "text": text}
    return render(request, "access/refused.html", context, status=HTTPStatus.FORBIDDEN)


@_of_somebody
def own_log_in(request: HttpRequest, user: User) -> HttpResponse:
    """`/login/own/`: what there is."""
    is_in = request.user.is_authenticated
    identity = OperatorIdentity.objects.filter(user=user).select_related("issuer").first()
    context = {
        "account": user,
        "identity": identity,
        "is_in": is_in,
        "is_required": second_factor.is_required(user),
        "factors": second_factor.factors_of(user),
        "recovery": second_factor.recovery_codes_left(user),
        "browsers": list_of(user, own=request.session.session_key) if is_in else [],
    }
    return render(request, "access/own.html", context)


@never_cache
def confirm(request: HttpRequest) -> HttpResponse:
    """`/login/confirm/`: a second factor again, or what the account has instead."""
    user = request.user
    next_url = own_url(request, request.GET.get("next", ""))
    if not user.is_authenticated:
        return redirect("admin:login")
    if request.method == "POST" and (refusal := own_login.too_many_tries(request)):
        return refusal
    if second_factor.has_factor(user):
        if request.method != "POST":
            return ask_for_factor(request, user, _CONFIRM)
        if refusal := try_factor(request, user, _CONFIRM):
            return refusal
        own_login.has_proved(request, by_factor=True)
        return redirect(next_url)
    identity = OperatorIdentity.objects.filter(user=user).first()
    if identity is not None:
        back = urlencode({"next": next_url})
        return redirect(f"{reverse('with-issuer', args=[identity.issuer_id])}?{back}")
    fault = ""
    if request.method == "POST":
        given = request.POST.get("password", "")
        if authenticate(request, username=user.get_username(), password=given) == user:
            own_login.has_proved(request, by_factor=False)
            return redirect(next_url)
        fault = "This is not the password."
    context = {"title": _CONFIRM, "fault": fault, "next": next_url}
    return render(request, "access/confirm_password.html", context)


@_confirmed
def add_app(request: HttpRequest, user: User) -> HttpResponse:
    """`/login/own/app/`: set up an app, by its first code."""
    fault = ""
    secret = request.session.get(SECRET) or second_factor.new_secret()
    if request.method == "POST":
        try:
            row = second_factor.add_app(
                user, secret, request.POST.get("code", "")[:20], _named(request, "App")
            )
        except Wrong as wrong:
            fault = str(wrong)
        else:
            request.session.pop(SECRET, None)
            return _added(request, user, row)
    request.session[SECRET] = secret
    url = second_factor.secret_url(secret, user.get_username(), settings.DOMAIN)
    context = {"picture": second_factor.picture(url), "url": url, "fault": fault,
               "secret": " ".join(secret[n : n + 4] for n in range(0, len(secret), 4))}  # fmt: skip
    return render(request, "access/add_app.html", context)


@_confirmed
def new_passkey(request: HttpRequest, user: User) -> HttpResponse:
    """`/login/own/passkey/`: add a passkey."""
    fault = ""
    if request.method == "POST":
        try:
            row = add_passkey(request, user, _named(request, "Passkey"))
        except Wrong as wrong:
            fault = str(wrong)
        else:
            return _added(request, user, row)
    context = {"offer": passkey_offer(request, user), "fault": fault}
    return render(request, "access/add_passkey.html", context)


@_confirmed
def new_codes(request: HttpRequest, user: User) -> HttpResponse:
    """`/login/own/codes/`: recovery codes in the place of the former ones."""
    if request.method != "POST" or not second_factor.has_factor(user):
        return redirect("own-log-in")
    note(user.get_username(), "second-factor.recovery-codes", user, {}, {})
    return _codes(request, user, reverse("own-log-in"))


@_confirmed
def remove(request: HttpRequest, user: User) -> HttpResponse:
    """`/login/own/remove/`: take a factor away, but not the last one that a role asks for."""
    pk = request.POST.get("factor", "")
    factors = second_factor.factors_of(user)
    row = next((each for each in factors if str(each.pk) == pk), None)
    if request.method == "POST" and row is not None:
        if len(factors) == 1 and second_factor.is_required(user):
            text = "Your role asks for a second factor. Add another one before you remove this one."
            return render(request, "access/refused.html", {"title": "Not removed", "text": text},
                          status=409)  # fmt: skip
        second_factor.remove(user, row.pk)
        note(user.get_username(), "second-factor.remove", user, second_factor.shown(row), {})
    return redirect("own-log-in")


@require_POST
@_of_somebody
def end_browser(request: HttpRequest, user: User) -> HttpResponse:
    """`/login/own/end/`: log out another browser of one's own."""
    if request.user.is_authenticated:
        end_log_in(request.POST.get("log_in", ""), user, user.get_username())
    return redirect("own-log-in")


def list_of(*users: User, own: str | None = None) -> list[dict[str, Any]]:
    """The log-ins of browsers for people; the key of a session is a secret, its digest is not."""
    return [
        {
            "id": digest(row.session_key),
            "user": pk,
            "is_own": row.session_key == own,
            "ends": row.expire_date,
            **_about(content.get(LOG_IN) or {}),
        }
        for row, pk, content in browser_sessions(*users, most=READ)
    ]


def end_log_in(id_: str, user: User, by: str) -> bool:
    """End the log-in with this id, if it is one of the user's."""
    rows = BrowserSession.objects.filter(expire_date__gt=timezone.now())
    keys = rows.values_list("session_key", flat=True).iterator()
    key = next((each for each in keys if digest(each) == id_), None)
    row = rows.filter(pk=key).first()  # the only content that is decoded
    content = row.get_decoded() if row is not None else {}
    if row is None or content.get("_auth_user_id") != str(user.pk):
        return False
    row.delete()
    note(by, "log-in.end", user, {"from": (content.get(LOG_IN) or {}).get("from")}, {})
    return True


def _about(said: dict[str, Any]) -> dict[str, Any]:
    at = said.get("at")
    return {
        "since": datetime.fromtimestamp(at, UTC) if isinstance(at, float) else None,
        "from": said.get("from", ""),
        "browser": said.get("browser", ""),
        "by": said.get("by", ""),
    }


def _named(request: HttpRequest, otherwise: str) -> str:
    given = "".join(each for each in request.POST.get("name", "") if each.isprintable())
    return given.strip()[:64] or otherwise


def _added(request: HttpRequest, user: User, row: Any) -> HttpResponse:
    """A factor has been set up: with the first one come recovery codes, and perhaps the log-in."""
    note(user.get_username(), "second-factor.add", user, {}, second_factor.shown(row))
    next_url = reverse("own-log-in")
    if not request.user.is_authenticated and (found := own_login.pending(request)):
        said = found[1]
        next_url = said["next"]
        own_login.enter(request, user, next_url, said["by"], is_strong=True)
    own_login.has_proved(request, by_factor=True)
    if second_factor.recovery_codes_left(user):
        return redirect(next_url)
    return _codes(request, user, next_url)


def _codes(request: HttpRequest, user: User, next_url: str) -> HttpResponse:
    context = {"codes": second_factor.new_recovery_codes(user), "next": next_url}
    return render(request, "access/recovery_codes.html", context)


@staff_member_required
@permission_required("auth.change_user", raise_exception=True)
def log_ins(request: HttpRequest) -> HttpResponse:
    """`/admin/log-ins/`: the browsers of all operators, for who administers accounts."""
    users = {user.pk: user for user in User.objects.filter(is_staff=True)}
    if request.method == "POST":
        id_ = request.POST.get("log_in", "")
        whose = users.get(int(request.POST["user"])) if request.POST["user"].isdecimal() else None
        if (
            whose is not None
            and roles.may_touch(request.user, whose)
            and end_log_in(id_, whose, request.user.get_username())
        ):
            messages.success(request, f"{whose} is logged out of that browser.")
        else:
            messages.warning(request, "This log-in is over, or not yours to end.")
        return redirect("log-ins")
    found = list_of(*users.values(), own=request.session.session_key) if users else []
    context = {
        **admin.site.each_context(request),
        "title": "Operators logged in",
        "log_ins": [{**each, "user": users[each["user"]]} for each in found],
        "read": READ,
        "is_cut": BrowserSession.objects.filter(expire_date__gt=timezone.now())[: READ + 1].count()
        > READ,
    }
    return TemplateResponse(request, "console/log_ins.html", context)
