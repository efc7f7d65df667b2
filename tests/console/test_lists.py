"""The lists stay at ten queries, whatever they hold, and their searches find what they should.

The long test has a thousand rows of each kind, with FULL_LENGTH 100,000 of what is not written by
hand, opens every page of the menu and one of a row of each kind, and prints the times: no page
computes for a second, and one should take under 300 ms.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from math import inf
from time import perf_counter, process_time

import pytest
from django.contrib.admin import site
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from django_celery_beat.models import (
    ClockedSchedule,
    CrontabSchedule,
    IntervalSchedule,
    PeriodicTask,
    SolarSchedule,
)

from msgnode.console import roles
from msgnode.console.lists import BOUND
from msgnode.models import (
    AddressPool,
    Alarm,
    AlarmRule,
    Allocation,
    AuditEntry,
    Connector,
    LegacyNetwork,
    Peer,
    SecondFactor,
    Session,
    Subscription,
    WebhookHost,
)
from msgnode.qos.models import TrafficClass
from msgnode.storage.alarms import raise_alarm
from msgnode.storage.control import post
from policies.authoring import pap
from policies.models import NamedList, Policy, PolicySet, PolicyTest, Rule, RuleHits
from spark.models import Report
from tests.length import length

from . import one_of_each
from .accounts import as_role
from .rows import fill, multiply
from .test_every_page import MENU


def url(model: str, query: str = "") -> str:
    return f"/admin/msgnode/{model}/{query}"


LISTS = (
    "session", "allocation", "subscription", "addresspool", "pooladdress", "alarm",
    "componentstatus", "worker", "controlmessage", "issuer", "revocation", "addressowner",
)  # fmt: skip
MORE = (
    "/admin/policies/decisionentry/?passes__exact=0",
    url("auditentry", "?q=operator"), url("auditentry", "?hours=24"),
    "/admin/registry/hyperty/?q=hyperty://localhost/h0000",
    "/admin/registry/hyperty/?q=nothing", "/admin/search/?s=hyperty://localhost/h0000&extended=1",
    "/admin/qos/reservation/?state__exact=held", "/admin/qos/reservation/?o=8",
)  # fmt: skip
HANDFUL = {AddressPool, Connector, Group, LegacyNetwork, Peer, PeriodicTask, TrafficClass}
HANDFUL |= {ClockedSchedule, CrontabSchedule, IntervalSchedule, SolarSchedule}
"""Kinds of which there are never many: one for each scheme, port, role, network, domain, task or
bit rate.
"""
WRITTEN = {PolicySet, Policy, Rule, NamedList, PolicyTest, RuleHits}
"""Kinds that operators write one by one: at most a thousand."""
SLOWEST = 1000
"""Milliseconds that a page may compute, so that one is there within a second on a quiet machine."""
MAX_QUERIES = 10


@pytest.mark.django_db
def test_a_list_keeps_nothing_of_a_request_that_was_answered() -> None:
    response = as_role(roles.OPERATOR).get(url("session"))
    assert response.status_code == 200
    page = site._registry[Session]
    assert page.request.user.is_authenticated  # type: ignore[attr-defined]
    del response
    gc.collect()
    assert not any(hasattr(each, "request") for each in site._registry.values())


def pages(session: Session) -> list[str]:
    """Each list plain, sorted, filtered and searched; the page of a session; the overview."""
    some = Allocation.objects.get(session=session)
    return [
        "/admin/",
        *(url(model) for model in LISTS),
        url("session", "?p=5"),
        url("session", "?o=1"),
        url("session", "?state__exact=detached"),
        url("session", "?handshake=stub-connect"),
        url("session", f"?q={session.runtime_url}"),
        url("session", f"?q={session.id}"),
        url("session", "?q=10.0.7.7"),
        url("session", "?q=nothing+of+the+kind"),
        url("allocation", f"?q={some.address}"),
        url("allocation", f"?q={session.runtime_url}"),
        url("allocation", "?q=nothing+of+the+kind"),
        url("allocation", "?scheme=hyperty&kind__exact=made"),
        url("allocation", f"?session__id__exact={session.id}"),
        url("subscription", f"?q=comm://localhost/{session.id}"),
        url("subscription", f"?q={session.runtime_url}"),
        url("subscription", "?q=nothing+of+the+kind"),
        url("session", f"{session.id}/change/"),
        url("allocation", f"{some.pk}/change/"),
    ]


def measured(operator: Client, page: str) -> tuple[int, float, float]:
    """Queries of a page, its milliseconds, and those of them that this process computed."""
    with CaptureQueriesContext(connection) as queries:
        began, busy = perf_counter(), process_time()
        response = operator.get(page)
        took, busy = perf_counter() - began, process_time() - busy
    assert response.status_code == 200, page
    return len(queries), took * 1000, busy * 1000


def slow_among(
    operator: Client, some: Sequence[str], most_queries: float = inf
) -> dict[str, float]:
    """Those of the pages that compute for too long, and how long; none needs more queries."""
    slow = {}
    for page in some:
        queries, took, busy = measured(operator, page)
        print(f"{took:7.0f} ms ({busy:4.0f} computing) {queries:3} queries  {page}")
        assert queries <= most_queries, page
        if busy >= SLOWEST:
            slow[page] = busy
    return slow


def test_no_page_needs_more_than_ten_queries(operator):
    sessions = fill(300)
    raise_alarm("gap", "runtime://localhost/user000001", "Messages were lost.")
    post("session.end", session="0" * 32)
    operator.get("/admin/")  # what is read once in a process
    slow_among(operator, pages(sessions[150]), MAX_QUERIES)


def rows_pages() -> list[str]:
    """The page of one row of each kind; that of a webhook host asks for a second factor first."""
    rows = {kind: kind._default_manager.last() for kind in site._registry}
    rows |= {WebhookHost: None, Peer: Peer.objects.filter(legacynetwork=None).last()}
    return [
        reverse(f"admin:{kind._meta.app_label}_{kind._meta.model_name}_change", args=[row.pk])
        for kind, row in rows.items()
        if row is not None
    ]


@pytest.mark.long
@pytest.mark.timeout(length(600, full=3600))
def test_many_rows_are_no_burden(operator):
    number = length(1_000, full=100_000)
    sessions = fill(number)
    one_of_each.fill()
    for kind in site._registry.keys() - HANDFUL:
        row = kind._default_manager.order_by("pk").last()
        many = min(number, 1_000) if kind in WRITTEN else number
        if row is not None and kind._default_manager.count() < many:
            multiply(row, many)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")  # which a database in use does by itself
    operator.get("/admin/")
    slow = slow_among(operator, pages(sessions[len(sessions) // 2]), MAX_QUERIES)
    slow |= slow_among(operator, (*MENU, *MORE, *rows_pages()))
    assert slow == {}


def shown(operator: Client, page: str) -> set[str]:
    """What the list shows, as texts of its rows."""
    return {str(row) for row in operator.get(page).context["cl"].result_list}


def test_sessions_are_found_by_what_an_operator_knows_of_them(operator):
    session = fill(30)[7]
    one = {session.runtime_url}
    assert shown(operator, url("session", f"?q={session.runtime_url}")) == one
    assert shown(operator, url("session", "?q=user000007")) == one
    assert shown(operator, url("session", f"?q={session.id}")) == one
    assert shown(operator, url("session", f"?q={session.id.hex}")) == one
    assert shown(operator, url("session", "?q=subject-7")) == one
    assert shown(operator, url("session", "?q=10.0.7.7")) == one
    assert len(shown(operator, url("session", "?q=user00000"))) == 10
    assert shown(operator, url("session", "?q=nobody")) == set()


def test_addresses_are_found_by_address_session_and_key(operator):
    session = fill(30)[7]
    address = Allocation.objects.get(session=session).address
    tail = address.rpartition("/")[2]
    for term in (address, tail, session.runtime_url, session.id, "key-subject-7"):
        assert shown(operator, url("allocation", f"?q={term}")) == {address}
    for term in (f"comm://localhost/{session.id}", session.id, session.runtime_url):
        assert shown(operator, url("subscription", f"?q={term}")) == {
            f"comm://localhost/{session.id}/changes"
        }


def test_a_page_of_a_session_shows_a_bounded_part_of_what_it_holds(operator):
    session = fill(1)[0]
    Subscription.objects.bulk_create(
        Subscription(session=session, address=f"context://localhost/{n}") for n in range(200)
    )
    page = operator.get(url("session", f"{session.id}/change/")).content.decode()
    assert page.count("context://localhost/") == 25
    assert f"?session__id__exact={session.id}" in page
    assert session.token_hash not in page


def test_a_list_counts_no_further_than_its_bound(operator, monkeypatch):
    monkeypatch.setattr("msgnode.console.lists.BOUND", 100)
    fill(250)
    response = operator.get(url("session"))
    assert response.context["cl"].result_count == 100
    assert "100+" in response.content.decode()
    assert BOUND == 10_000


def test_the_first_steps_are_checked_by_the_node_and_gone_when_they_are_done(
    operator, settings, tmp_path
):
    settings.DATA_DIR = tmp_path
    settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
    settings.DOMAIN, settings.PUBLIC_URL = "localhost", "http://localhost:8000"
    text = operator.get("/admin/").content.decode()
    assert "First steps: 0 of 9 done" in text
    assert reverse("admin:msgnode_alarmrule_add") in text
    settings.DOMAIN, settings.PUBLIC_URL = "example.org", "https://example.org"
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    User.objects.create_user("alice").groups.add(Group.objects.get(name=roles.VIEWER))
    pap.publish()
    assert "First steps: 5 of 9 done" in operator.get("/admin/").content.decode()
    AlarmRule.objects.create(name="a", figure="messages", limit=1, mail_to="o@example.org")
    Report.objects.create(kind="hourly", start=timezone.now(), end=timezone.now())
    SecondFactor.objects.create(user=User.objects.get(username="alice"), kind="codes")
    (tmp_path / "backups").mkdir()
    (tmp_path / "backups" / "example.org.tar.gz").touch()
    assert "First steps" not in operator.get("/admin/").content.decode()


@pytest.mark.django_db
def test_the_first_steps_are_for_who_can_take_them() -> None:
    assert "First steps" not in as_role(roles.VIEWER).get("/admin/").content.decode()


def test_the_overview_shows_numbers_alarms_and_components(operator):
    fill(10)
    raise_alarm("gap", "", "Messages to a session were lost.")
    page = operator.get("/admin/").content.decode()
    assert "Messages to a session were lost." in page
    assert "No worker has reported yet." in page


def test_an_alarm_is_cleared_and_the_audit_log_says_by_whom(operator):
    raise_alarm("gap", "", "Messages to a session were lost.")
    alarm = Alarm.objects.get()
    operator.post(url("alarm"), {"action": "clear", "_selected_action": [alarm.pk]})
    alarm.refresh_from_db()
    assert alarm.cleared_at is not None
    entry = AuditEntry.objects.get(action="alarm.clear")
    assert (entry.actor, entry.object) == ("operator", "gap")
    operator.post(url("alarm"), {"action": "clear", "_selected_action": [alarm.pk]})
    assert AuditEntry.objects.filter(action="alarm.clear").count() == 1, "it was cleared already"


def test_the_console_is_for_operators(client, django_user_model):
    user = django_user_model.objects.create_user("guest", password="let me in")
    assert client.get(url("session")).status_code == 302
    client.force_login(user)
    assert client.get(url("session")).status_code == 302


def test_an_empty_list_says_so_and_offers_only_what_one_may_do(operator: Client) -> None:
    bans, sessions = (operator.get(f"/admin/msgnode/{each}/") for each in ("ban", "session"))
    for page in (bans, sessions):
        assert "This list is empty" in page.content.decode()
        assert "Show all" not in page.content.decode()
    assert "Add ban</a>" in bans.content.decode()
    assert "/admin/msgnode/session/add/" not in sessions.content.decode()


@pytest.mark.parametrize("question", ["q=nobody", "kind__exact=runtime"])
def test_a_list_without_a_match_offers_to_show_all(operator: Client, question: str) -> None:
    page = operator.get(f"/admin/msgnode/ban/?{question}").content.decode()
    assert "Nothing matches" in page
    assert "This list is empty" not in page


@pytest.mark.parametrize("path", ["msgnode/auditentry/?at__year", "spark/report/?start__year"])
@pytest.mark.parametrize("year", ["99999", "0", "9" * 30, "x"])
def test_a_filter_by_a_year_that_there_is_not_is_left_out(
    operator: Client, path: str, year: str
) -> None:
    answer = operator.get(f"/admin/{path}={year}", follow=True)
    assert answer.status_code == 200
