"""Log-ins beyond name and password: the second step, passkeys, and the company's own log-in.

Rules
- A wrong code counts as a failed log-in of the name from the address (django-axes), as a try of the
  address (LOGINS_PER_MINUTE), and against the account (second_factor.PER_MINUTE). Each is audited.
- An account of an issuer is found by issuer and subject, never by a name or an e-mail address; it
  is made at the first log-in, and has no password. Its roles are exactly those of its groups there,
  set at each log-in; without one it is not let in, and its log-ins end. No group makes a superuser.
- It is named so that it is no user of this domain: its name has an @, and no address is kept.
- Who is switched off stays out. Redirects lead to this node only.
"""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from axes.handlers.proxy import AxesProxyHandler
from django.conf import settings
from django.contrib import admin
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.models import Group, User
from django.contrib.auth.signals import user_login_failed
from django.db import IntegrityError, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.http import url_has_allowed_host_and_scheme
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from msgnode.identity import openid_login, second_factor
from msgnode.identity.issuer_store import issuer_of
from msgnode.identity.openid_login import NotLoggedIn, Subject
from msgnode.identity.provider import login as own_login
from msgnode.identity.provider.revocation import end_browser_sessions
from msgnode.models import Issuer, OperatorIdentity
from msgnode.web.proxies import address_of, is_ip_address

from .actor import acting_as
from .audit import note

COMPANY = "company_log_in"
PASSKEY = "passkey_state"
"""Keys of a browser's session: what a question that is open was asked with."""
_NOT_IN_A_NAME = re.compile(r"[^\w.@+-]")


class ConsoleAuthenticationForm(AdminAuthenticationForm):
    """Name and password of an account that may enter the console."""

    error_messages = {
        **AdminAuthenticationForm.error_messages,
        "invalid_login": "Name or password is wrong, or the account has no role. Capitals count.",
    }


class ConsoleLogin(own_login.Login):
    """`/admin/login/`: name and password, a passkey, or the log-in of the company."""

    authentication_form = ConsoleAuthenticationForm

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """The form, for who is not in already."""
        if admin.site.has_permission(request):
            return redirect("admin:index")
        return super().get(request, *args, **kwargs)

    def get_default_redirect_url(self) -> str:
        """The overview."""
        return reverse("admin:index")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """What the page shows beside the form."""
        return {
            **super().get_context_data(**kwargs),
            "is_console": True,
            "next": self.get_redirect_url(),
            "issuers": Issuer.objects.filter(logs_in_operators=True, is_enabled=True),
            "takes_passkeys": takes_passkeys(self.request),
        }


@method_decorator(never_cache, name="dispatch")
class SecondStep(View):
    """`/login/second/`: the second factor of who has shown the first one."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """What may be shown; who has no factor yet is led to where one is set up."""
        found = own_login.pending(request)
        if found is None:
            return redirect("admin:login")
        user, _ = found
        if not second_factor.has_factor(user):
            return redirect("own-log-in")
        return ask_for_factor(request, user, "Log in: second step")

    def post(self, request: HttpRequest) -> HttpResponse:
        """Log in, if the factor is right."""
        if refusal := own_login.too_many_tries(request):
            return refusal
        found = own_login.pending(request)
        if found is None:
            return redirect("admin:login")
        user, said = found
        if refusal := try_factor(request, user, "Log in: second step"):
            return refusal
        return own_login.enter(request, user, said["next"], said["by"], is_strong=True)


@require_POST
@never_cache
def passkey_question(request: HttpRequest) -> HttpResponse:
    """`/login/passkey/question/`: a challenge for the passkey of whoever it is."""
    if refusal := own_login.too_many_tries(request):
        return refusal
    if not takes_passkeys(request):
        raise Http404
    question, state = second_factor.passkey_question(_server(request), None)
    request.session[PASSKEY] = state
    return JsonResponse(question)


@require_POST
@never_cache
def passkey_log_in(request: HttpRequest) -> HttpResponse:
    """`/login/passkey/`: log in by a passkey alone, which is two factors."""
    next_url = own_url(request, request.POST.get("next", ""))
    try:
        row = _passkey(request, None)
    except second_factor.Wrong as fault:
        return _not_let_in(request, str(fault))
    user = row.user
    identity = OperatorIdentity.objects.filter(user=user).select_related("issuer").first()
    why = "" if user.is_active else "This account is switched off."
    if identity is not None:
        why = f"This account logs in with {identity.issuer}, which knows its groups."
    if why:
        note(user.get_username(), "user.not-let-in", user, {}, _from(request, why))
        return _not_let_in(request, why)
    if not _is_open(request, user):
        return own_login.locked_out(request)
    return own_login.enter(request, user, next_url, "passkey", is_strong=True)


# --- Factors, for whoever asks --------------------------------------------------------------------


def takes_passkeys(request: HttpRequest) -> bool:
    """Whether browsers make passkeys here: at a host name, and by TLS or on this machine."""
    name = request.get_host().partition(":")[0].strip("[]")
    return not is_ip_address(name) and (request.is_secure() or name == "localhost")


def ask_for_factor(
    request: HttpRequest, user: User, title: str, fault: str = "", status: int = 200
) -> HttpResponse:
    """The page that asks for a second factor of an account, and leads on to where it was asked."""
    kinds = {row.kind for row in second_factor.factors_of(user)}
    question = ""
    if "passkey" in kinds and takes_passkeys(request):
        told, request.session[PASSKEY] = second_factor.passkey_question(_server(request), user)
        question = json.dumps(told)
    context = {"title": title, "fault": fault, "question": question, "has_app": "codes" in kinds,
               "name": user.get_username(), "next": request.GET.get("next", "")}  # fmt: skip
    found = own_login.pending(request)
    origin = own_login.origin_asked_for(found[1]["next"]) if found else ""
    response = render(request, "access/second_factor.html", context, status=status)
    return own_login.leads_on(response, origin)


def try_factor(request: HttpRequest, user: User, title: str) -> HttpResponse | None:
    """Try what was posted: None if it is right, else the page that says why not."""
    name = user.get_username()
    if not _is_open(request, user):
        return own_login.locked_out(request)
    try:
        if "passkey" in request.POST:
            row = _passkey(request, user)
        else:
            row = second_factor.verify_text(user, request.POST.get("code", "")[:100])
    except second_factor.Wrong as fault:
        user_login_failed.send(__name__, credentials={"username": name}, request=request)
        note(name, "second-factor.failed", user, {}, {"from": address_of(request)})
        return ask_for_factor(request, user, title, str(fault), fault.status)
    if row.kind == "recovery":
        left = second_factor.recovery_codes_left(user)
        note(name, "second-factor.recovery", user, {}, {"left": left})
    return None


def passkey_offer(request: HttpRequest, user: User) -> str:
    """What a browser is given to make a passkey, as JSON; "" where it cannot."""
    if not takes_passkeys(request):
        return ""
    told, request.session[PASSKEY] = second_factor.passkey_offer(_server(request), user)
    return json.dumps(told)


def add_passkey(request: HttpRequest, user: User, name: str) -> Any:
    """Enter the passkey that was posted. Raises Wrong."""
    state, answer = _open_question(request)
    return second_factor.add_passkey(_server(request), user, state, answer, name)


def _passkey(request: HttpRequest, user: User | None) -> Any:
    state, answer = _open_question(request)
    return second_factor.verify_passkey(_server(request), state, answer, user)


def _open_question(request: HttpRequest) -> tuple[Any, Any]:
    """What the browser was asked, and what it says; each question is answered once."""
    state = request.session.pop(PASSKEY, None)
    try:
        answer = json.loads(request.POST.get("passkey", "")[:65_536])
    except (ValueError, RecursionError):
        answer = None
    if not state or not isinstance(answer, dict):
        raise second_factor.Wrong("The passkey was not accepted. Try again.")
    return state, answer


def _server(request: HttpRequest) -> Any:
    return second_factor.passkey_server(request.get_host(), request.scheme or "http")


def _is_open(request: HttpRequest, user: User) -> bool:
    """Whether the name is not locked for this address."""
    credentials = {"username": user.get_username()}
    return bool(AxesProxyHandler.is_allowed(request, credentials))


# --- The company's log-in -------------------------------------------------------------------------


@never_cache
def begin_at_issuer(request: HttpRequest, pk: int) -> HttpResponse:
    """`/login/with/<issuer>/`: on to the issuer."""
    if refusal := own_login.too_many_tries(request):
        return refusal
    row = _issuer(pk)
    own = settings.PUBLIC_URL.rstrip("/")
    if urlsplit(own).netloc != request.get_host():  # where the issuer sends the browser back to
        return HttpResponseRedirect(own + request.get_full_path())
    back = own + reverse("back-from-issuer", args=[pk])
    try:
        url, state = openid_login.begin(issuer_of(row), back, again=request.user.is_authenticated)
    except NotLoggedIn as fault:
        return _not_let_in(request, str(fault))
    next_url = own_url(request, request.GET.get("next", ""))
    request.session[COMPANY] = {**state, "next": next_url, "back": back}
    return HttpResponseRedirect(url)


@never_cache
def back_from_issuer(request: HttpRequest, pk: int) -> HttpResponse:
    """`/login/with/<issuer>/back/`: who comes back is logged in, with the roles of the groups."""
    if refusal := own_login.too_many_tries(request):
        return refusal
    row = _issuer(pk)
    state = request.session.pop(COMPANY, {})
    name = str(row)
    try:
        said = openid_login.finish(
            issuer_of(row), row.groups_claim, state.get("back", ""), state, request.GET.dict()
        )
        name = f"{said.subject} of {row}"
        user = _account(row, said)
    except NotLoggedIn as fault:
        if name != str(row):  # whom nobody vouches for fills no log
            note(name, "user.not-let-in", row, {}, _from(request, str(fault)))
        return _not_let_in(request, str(fault))
    return own_login.let_in(request, user, state["next"], str(row), is_strong=said.is_strong)


def _issuer(pk: int) -> Issuer:
    rows = Issuer.objects.filter(pk=pk, logs_in_operators=True, is_enabled=True)
    row = rows.exclude(kind=Issuer.Kind.EMBEDDED).first()
    if row is None:
        raise Http404
    return row


def _account(row: Issuer, said: Subject) -> User:
    """The account of a subject, with the roles of its groups. Raises NotLoggedIn."""
    mapped = Group.objects.filter(
        pk__in=row.roles.filter(group__in=said.groups).values("role"),
    )
    given = list(mapped)
    known = OperatorIdentity.objects.filter(issuer=row, subject=said.subject)
    identity = known.select_related("user").first()
    if identity is None and given:
        try:
            identity = _new_account(row, said)
        except IntegrityError:
            raise NotLoggedIn("Somebody else has just logged in. Try again.") from None
    if identity is None:
        raise NotLoggedIn(f"None of your groups at {row} has a role here.")
    user = identity.user
    if not user.is_active:
        raise NotLoggedIn("This account is switched off.")
    with acting_as(user.get_username()), transaction.atomic():
        _give(user, given)
        first, _, last = said.full_name.partition(" ")
        if (user.first_name, user.last_name) != (first[:150], last[:150]):
            user.first_name, user.last_name = first[:150], last[:150]
            user.save(update_fields=["first_name", "last_name"])
    if not user.is_staff:
        end_browser_sessions(user)
        raise NotLoggedIn(f"None of your groups at {row} has a role here any more.")
    return user


def _new_account(row: Issuer, said: Subject) -> OperatorIdentity:
    name = _NOT_IN_A_NAME.sub("-", said.name)[:100]
    if "@" not in name:
        name = f"{name}@{issuer_of(row).all_domains[0]}"[:140]
    with acting_as(name), transaction.atomic():
        taken = set(
            User.objects.filter(username__startswith=name).values_list("username", flat=True)
        )
        number = 1
        free = name
        while free in taken:
            number += 1
            free = f"{name}-{number}"
        user = User(username=free)
        user.set_unusable_password()
        user.save()
        return OperatorIdentity.objects.create(user=user, issuer=row, subject=said.subject)


def _give(user: User, given: list[Group]) -> None:
    """Roles that somebody has added here by hand go, too."""
    user.groups.set(given)
    user.user_permissions.clear()
    is_in = any(group.permissions.exists() for group in given)
    if user.is_superuser or user.is_staff != is_in:
        user.is_superuser, user.is_staff = False, is_in
        user.save(update_fields=["is_superuser", "is_staff"])


def _not_let_in(request: HttpRequest, why: str) -> HttpResponse:
    context = {"title": "Not logged in", "text": why, "is_again": True}
    return render(request, "access/refused.html", context, status=HTTPStatus.FORBIDDEN)


def _from(request: HttpRequest, why: str) -> dict[str, str]:
    return {"from": address_of(request), "why": why}


def own_url(request: HttpRequest, url: str) -> str:
    """Where a log-in leads: to a page of this node, else to the overview."""
    hosts = {request.get_host()}
    if url and url_has_allowed_host_and_scheme(url, hosts, require_https=request.is_secure()):
        return url
    return reverse("admin:index")
