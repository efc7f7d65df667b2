"""Sessions in the console: the list, and the page of one with what it holds."""

from __future__ import annotations

from time import sleep
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.db.models import Case, IntegerField, Q, QuerySet, Value, When
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.http import urlencode
from unfold.contrib.filters.admin import DropdownFilter, RangeDateTimeFilter
from unfold.decorators import action, display
from unfold.widgets import UnfoldAdminRadioSelectWidget, UnfoldAdminTextInputWidget

from msgnode.models import Session
from msgnode.monitoring import worker_queries
from msgnode.monitoring.watched_sessions import SessionRates
from msgnode.web.proxies import is_ip_address
from policies.authoring.drafts import paths_of_rules
from policies.models import DecisionEntry

from . import operator_actions
from .confirm import Admin, ask, is_confirmed, tell_gone, too_many
from .lists import (
    BoundedChangeList,
    OfferedFilter,
    WrittenByTheNode,
    address_filter,
    as_uuid,
    begins_with,
    page_of,
)

ALL = "all"
REFUSALS = 10
RATES = (
    ("messages", "Messages sent", "count"),
    ("copies", "Messages received", "count"),
    ("bytes_in", "Bytes sent", "bytes"),
    ("waiting", "Bytes waiting in the outbox", "level"),
)
"""Figures of a second: name, title, unit."""
CHARTS = (
    ("session", "Messages a second", "from the session, to the session, failed"),
    ("volume", "Bytes a second, and bytes that wait", "from the session, to the session, waiting"),
)
SHOWN = 25
"""Allocations and subscriptions on the page of a session; their lists have the rest."""


BUSIEST = 500
"""Sessions that a list sorted by what they do has: the database does not know what they do."""
PATIENCE, FIRST_LOOK = 0.2, 0.25
"""Seconds that other workers have to answer, and between two looks where there was none before."""

HANDSHAKES = [
    ("ws", "/ws"), ("stub-connect", "/stub/connect"), ("device", "/device/v1"), ("mqtt", "MQTT"),
]  # fmt: skip
RETURN, STAY_AWAY = "return", "stay-away"


class HandshakeFilter(OfferedFilter):
    title = parameter_name = "handshake"
    offered = HANDSHAKES


class VisitorFilter(DropdownFilter):
    """Runtimes of this domain, visitors, or those of one other domain."""

    title = "domain"
    parameter_name = "visitor"
    ANY, NONE = "any", "none"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        words = [(self.NONE, "this domain's runtimes"), (self.ANY, "visitors")]
        named = request.GET.get(self.parameter_name, "")[:255]
        return words if not named or named in dict(words) else [*words, (named, named)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Session]) -> QuerySet[Session]:
        wanted = self.value()
        if not wanted:
            return queryset
        if wanted == self.ANY:
            return queryset.exclude(visits_from="")
        return queryset.filter(visits_from="" if wanted == self.NONE else wanted.lower())


class StateFilter(DropdownFilter):
    """Sessions that live, unless others are asked for: closed ones stay for days."""

    title = "state"
    parameter_name = "state__exact"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [*Session.State.choices, (ALL, "all, closed ones too")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Session]) -> QuerySet[Session]:
        if self.value() == ALL or as_uuid(request.GET.get("q", "").strip()) is not None:
            return queryset
        if self.value() in Session.State.values:
            return queryset.filter(state=self.value())
        return queryset.filter(state__in=(Session.State.OPEN, Session.State.DETACHED))


class SessionList(BoundedChangeList):
    """Sessions with what they do now, which their workers tell."""

    FIGURES: ClassVar[Any] = {"sent": "sent", "received": "received", "volume": "bytes"}
    told: list[SessionRates] | None = None
    says = ""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        """The sessions; sorted by a figure, those that have most of it, the first first."""
        by = next(filter(None, map(self._figure_of, self.get_ordering_field_columns())), "")
        if by:
            told = self.told = rates_now([], by, BUSIEST)
            if len(told) >= BUSIEST:
                self.says = f"sorted are the {BUSIEST} sessions with most of it"
            told.sort(key=lambda each: -(getattr(each, by) or 0))
            del told[BUSIEST:]
            places = [When(pk=each.session, then=place) for place, each in enumerate(told)]
            place = Case(*places, output_field=IntegerField()) if places else Value(0)
            ids = [each.session for each in told]
            rows: QuerySet[Any] = self.model_admin.get_queryset(request)
            self.root_queryset = rows.filter(pk__in=ids).annotate(place=place)
        found: QuerySet[Any] = super().get_queryset(request, exclude_parameters)
        return found

    def _figure_of(self, column: int) -> str:
        named = self.list_display[column] if 0 <= column < len(self.list_display) else ""
        return str(self.FIGURES.get(named, ""))

    def get_results(self, request: HttpRequest) -> None:
        """The rows of a page, with their figures."""
        super().get_results(request)
        if self.told is None:
            self.told = rates_now([row.pk.hex for row in self.result_list if row.worker])
        by_id = {each.session: each for each in self.told}
        for row in self.result_list:
            row.rates = by_id.get(row.pk.hex)


def rates_now(ids: list[str], by: str = "", most: int = 0) -> list[SessionRates]:
    """What these sessions do now, or those with the most of a figure; the first look takes two."""
    if not (ids or by):
        return []
    told = worker_queries.rates(ids, by, most, PATIENCE)
    if told and all(each.sent is None for each in told):
        sleep(FIRST_LOOK)
        told = worker_queries.rates(ids, by, most, PATIENCE)
    return told


@admin.register(Session)
class SessionAdmin(WrittenByTheNode):
    list_display = (
        "runtime", "state_label", "who", "address", "sent", "received", "volume", "worker",
        "opened_at",
    )  # fmt: skip
    list_filter = (
        StateFilter,
        VisitorFilter,
        HandshakeFilter,
        ("opened_at", RangeDateTimeFilter),
    )
    ordering = ("-opened_at",)
    sortable_by = ("runtime", "sent", "received", "volume", "opened_at")
    search_fields = ("runtime_url",)
    search_help_text = "Runtime URL (its beginning), session id, source address or subject"
    actions = ("end",)
    actions_detail = ("end_one", "ban_for_an_hour", "ban_runtime", "ban_domain", "subscribe_for")
    change_form_outer_before_template = "console/session_live.html"
    change_form_outer_after_template = "console/session_holdings.html"
    fieldsets: ClassVar[Any] = (
        (None, {"fields": ("runtime", "id", "visitor", "state_label", "connects_by")}),
        ("Who", {"fields": ("who", "subject", "issuer", "remote_address", "worker")}),
        ("When", {"fields": ("opened_at", "detached_at", "closed_at", "close_reason")}),
    )

    @display(description="runtime URL", ordering="runtime_url")
    def runtime(self, session: Session) -> str:
        return session.runtime_url

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[SessionList]:
        return SessionList

    @display(description="sent", ordering="place", empty_value="–")
    def sent(self, session: Session) -> str | None:
        """Messages a second, from the session."""
        return _per_second(session, "sent")

    @display(description="received", ordering="place", empty_value="–")
    def received(self, session: Session) -> str | None:
        """Messages a second, to the session."""
        return _per_second(session, "received")

    @display(description="bytes", ordering="place", empty_value="–")
    def volume(self, session: Session) -> str | None:
        """Both ways, since it connected."""
        rates = getattr(session, "rates", None)
        return filesizeformat(rates.bytes) if rates is not None else None

    @display(description="from", ordering="remote_address")
    def address(self, session: Session) -> str:
        return session.remote_address

    @display(description="visitor", label="info", empty_value="")
    def visitor(self, session: Session) -> str | None:
        """That it is one; whose runtime it is stands in its URL."""
        return "visitor" if session.visits_from else None

    @display(description="user", empty_value="–")
    def who(self, session: Session) -> str | None:
        """The user's name: a subject is a number that only its issuer can read."""
        known = session.identity if isinstance(session.identity, dict) else {}
        return str(known.get("username") or "") or session.subject or None

    @display(description="connects by")
    def connects_by(self, session: Session) -> str:
        return dict(HANDSHAKES).get(session.handshake, session.handshake)

    @display(
        description="state",
        ordering="state",
        label={"open": "success", "detached": "warning", "closed": "default"},
    )
    def state_label(self, session: Session) -> str:
        return session.state

    def has_end_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return request.user.has_perm("msgnode.change_session") and _lives(request, object_id)

    def has_ban_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return request.user.has_perm("msgnode.add_ban")

    def has_ban_domain_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Of a visitor: the others belong to this node's domain."""
        session = _of_page(request, object_id)
        is_ours = session is not None and not session.visits_from
        return not is_ours and self.has_ban_permission(request)

    def has_subscribe_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return request.user.has_perm("msgnode.add_subscription") and _lives(request, object_id)

    @action(description="End the selected sessions", permissions=["end"])
    def end(self, request: HttpRequest, queryset: QuerySet[Session]) -> HttpResponse | None:
        return end(self, request, queryset)

    @action(description="End session", url_path="end", permissions=["end"], icon="link_off")
    def end_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        session = self.row_of_page(request, object_id)
        sessions = Session.objects.filter(pk=session.pk)
        return end(self, request, sessions) or redirect(page_of(session))

    @action(description="Ban", url_path="ban", permissions=["ban"], icon="block")
    def ban_runtime(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self._to_ban(request, object_id, "runtime", "runtime_url")

    @action(description="Ban for an hour", url_path="ban-hour", permissions=["ban"], icon="timer")
    def ban_for_an_hour(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """To the form of a ban, filled in: its button is the second click."""
        reason = "for an hour, from the page of its session"
        return self._to_ban(request, object_id, "runtime", "runtime_url", hours="1", reason=reason)

    @action(
        description="Ban its domain", url_path="ban-domain", permissions=["ban_domain"],
        icon="domain",
    )  # fmt: skip
    def ban_domain(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """To the form of a ban of all visitors of the domain, filled in."""
        return self._to_ban(request, object_id, "domain", "visits_from")

    def _to_ban(
        self, request: HttpRequest, object_id: str, kind: str, column: str, **more: str
    ) -> HttpResponse:
        """To the form of a ban, filled in with what a column of the session says."""
        value = getattr(self.row_of_page(request, object_id), column)
        query = urlencode({"kind": kind, "value": value, **more})
        return redirect(f"{reverse('admin:msgnode_ban_add')}?{query}")

    @action(
        description="Add subscription", url_path="subscribe", permissions=["subscribe"], icon="add"
    )
    def subscribe_for(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return redirect(f"{reverse('admin:msgnode_subscription_add')}?session={object_id}")

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """Found by the beginning of their URL, sessions are listed by it: one index does both."""
        term = request.GET.get("q", "").strip()
        return ("runtime_url",) if ":/" in term else ("-opened_at",)

    def search_filter(self, term: str) -> Q:
        if (id_ := as_uuid(term)) is not None:
            return Q(id=id_) | address_filter("runtime_url", term, ["runtime"])
        if ":/" in term:
            return begins_with("runtime_url", term)
        if is_ip_address(term):
            return Q(remote_address=term)
        return address_filter("runtime_url", term, ["runtime", "hyperty-runtime"]) | Q(subject=term)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        session = self.get_object(request, object_id)
        if session is None:
            return super().change_view(request, object_id, form_url, extra_context)
        context = {
            "subtitle": session.runtime_url,
            "session": session,
            "allocations": _first(session.allocations.order_by("-id")),
            "subscriptions": _first(session.subscriptions.order_by("-id")),
            "shown": SHOWN,
            "lives": session.state != Session.State.CLOSED,
            "session_rates": RATES,
            "session_charts": CHARTS,
            "refusals": _refusals(request, session),
            "refusals_url": _refusals_url(session),
        }
        return super().change_view(
            request, object_id, form_url, {**(extra_context or {}), **context}
        )


def _per_second(session: Session, name: str) -> str | None:
    rates = getattr(session, "rates", None)
    rate = getattr(rates, name, None)
    return None if rate is None else f"{rate:,.1f}/s" if rate < 100 else f"{rate:,.0f}/s"


def _of_page(request: HttpRequest, object_id: object) -> Session | None:
    """The session that a page is about, read once: each of the page's actions asks."""
    kept: dict[object, Session | None] = request.__dict__.setdefault("_of_page", {})
    if object_id not in kept:
        id_ = as_uuid(str(object_id))
        kept[object_id] = Session.objects.filter(pk=id_).first() if id_ else None
    return kept[object_id]


def _lives(request: HttpRequest, object_id: object) -> bool:
    """Whether a session can still be ended; a list, which has no id, may have some that can."""
    session = _of_page(request, object_id) if object_id else None
    return session is None or session.state != Session.State.CLOSED


def _refusals(request: HttpRequest, session: Session) -> list[DecisionEntry] | None:
    """The newest refusals of the session by policies; None for users who may not see them."""
    if not request.user.has_perm("policies.view_decisionentry"):
        return None
    rows = DecisionEntry.objects.filter(session=session.pk.hex, passes=False)
    refusals = list(rows.defer("message", "facts")[:REFUSALS])
    rules = {path: pk for pk, path in paths_of_rules().items()} if refusals else {}
    for each in refusals:
        each.rule_pk = rules.get(each.path)  # type: ignore[attr-defined]  # for the template
    return refusals


def _refusals_url(session: Session) -> str:
    decisions = reverse("admin:policies_decisionentry_changelist")
    return f"{decisions}?{urlencode({'session': session.pk.hex, 'passes__exact': '0'})}"


def _first(rows: QuerySet[Any]) -> list[Any]:
    """The newest rows, one more than are shown if there are more."""
    return list(rows[: SHOWN + 1])


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
    is_answer = is_confirmed(request)
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
