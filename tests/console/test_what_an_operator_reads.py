"""What the console says is right, and what it offers can be done: lists, audit, schedule, menu."""

from __future__ import annotations

import re
import uuid
from datetime import timedelta

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, PeriodicTask
from django_celery_results.models import TaskResult

from msgnode.console import roles
from msgnode.console.audit import note
from msgnode.console.sessions import SHOWN
from msgnode.models import (
    Allocation,
    Ban,
    ControlMessage,
    PushEndpoint,
    Session,
    Subscription,
    Worker,
)
from msgnode.site_urls import CONSOLE
from msgnode.workers.lease import Lease
from msgnode.workers.lone import register_alone
from msgnode.workers.worker_process import WorkerId
from spark.models import ReportRun

pytestmark = pytest.mark.django_db


def text_of(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, path
    return answer.content.decode()


def session(state: str = "open", **more: object) -> Session:
    name = uuid.uuid4()
    return Session.objects.create(
        runtime_url=f"runtime://localhost/{name}", token_hash=name.hex, state=state, handshake="ws",
        **more,
    )  # fmt: skip


def test_a_list_of_sessions_leaves_out_closed_ones_unless_asked(operator: Client) -> None:
    living, closed = session(), session("closed", closed_at=timezone.now())
    page = text_of(operator, "/admin/msgnode/session/")
    assert living.runtime_url in page
    assert closed.runtime_url not in page
    assert closed.runtime_url in text_of(operator, "/admin/msgnode/session/?state__exact=closed")
    both = text_of(operator, "/admin/msgnode/session/?state__exact=all")
    assert living.runtime_url in both and closed.runtime_url in both
    assert closed.runtime_url in text_of(operator, f"/admin/msgnode/session/?q={closed.pk}")


def test_a_closed_session_is_not_offered_to_be_ended(operator: Client) -> None:
    living, closed = session(), session("closed")
    end = "End session"
    assert end in text_of(operator, f"/admin/msgnode/session/{living.pk}/change/")
    page = text_of(operator, f"/admin/msgnode/session/{closed.pk}/change/")
    assert end not in page
    assert "Add subscription" not in page


def test_what_a_session_has_more_of_is_behind_a_link_for_each_kind(operator: Client) -> None:
    holder = session()
    for number in range(SHOWN + 1):
        address = f"comm://localhost/{number}"
        Allocation.objects.create(address=address, scheme="comm", session=holder)
        Subscription.objects.create(address=f"{address}/changes", session=holder)
    page = text_of(operator, f"/admin/msgnode/session/{holder.pk}/change/")
    found = re.findall(r'href="([^"]+)\?session__id__exact=[^"]+">([^<]+)</a> \(only', page)
    assert found == [
        ("/admin/msgnode/allocation/", "Show all addresses"),
        ("/admin/msgnode/subscription/", "Show all subscriptions"),
    ]


def test_a_session_names_its_user_and_not_only_the_number_of_the_subject(operator: Client) -> None:
    known = session(subject="1", issuer="https://idp", identity={"username": "alice@example.org"})
    assert "alice@example.org" in text_of(operator, "/admin/msgnode/session/")
    assert "alice@example.org" in text_of(operator, f"/admin/msgnode/session/{known.pk}/change/")


def test_a_session_is_banned_for_an_hour_in_two_clicks(operator: Client) -> None:
    flooder = session()
    assert "Ban for an hour" in text_of(operator, f"/admin/msgnode/session/{flooder.pk}/change/")
    form = operator.get(f"/admin/msgnode/session/{flooder.pk}/ban-hour/", follow=True)
    filled = form.context["adminform"].form.initial
    left = filled["expires_at"] - timezone.now()
    assert timedelta(minutes=55) < left <= timedelta(hours=1)
    page = form.content.decode()
    values = {
        name: re.search(
            rf'name="{name}"[^>]*value="([^"]+)"|value="([^"]+)"[^>]*name="{name}"', page
        )
        for name in ("value", "reason", "expires_at_0", "expires_at_1")
    }
    posted = {name: (found[1] or found[2]) for name, found in values.items() if found}
    operator.post("/admin/msgnode/ban/add/", {"kind": "runtime", **posted})
    ban = Ban.objects.get()
    assert ban.value == flooder.runtime_url
    assert ban.expires_at is not None


def test_the_audit_log_shows_documents_as_json_and_marks_what_changed(operator: Client) -> None:
    was = {"mode": "off", "target": {"msgType": {"equals": "read"}}, "key": "S"}
    note("operator", "policyset.change", "S", was, was | {"mode": "enforce", "target": {}})
    page = text_of(operator, "/admin/msgnode/auditentry/")
    key = re.search(r"/auditentry/(\d+)/change/", page)
    assert key
    page = text_of(operator, f"/admin/msgnode/auditentry/{key[1]}/change/")
    assert "<del>off</del>" in page
    assert "<ins>enforce</ins>" in page
    assert "&quot;equals&quot;: &quot;read&quot;" in page
    assert "{&#x27;" not in page  # no dump of Python


def test_control_messages_are_told_in_words(operator: Client) -> None:
    ControlMessage.objects.create(
        kind="session.end", payload={"sessions": ["a", "b", "c", "d", "e"], "may_return": True}
    )
    page = text_of(operator, "/admin/msgnode/controlmessage/")
    assert "sessions: a, b, c and 2 more" in page
    assert "may return: true" in page
    assert "{&quot;" not in page


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("/admin/policies/policyset/playground/", "Playground"),
        ("/admin/policies/policyset/", "Policy sets"),
        ("/admin/spark/report/last-day/", "The last 24 hours"),
        ("/admin/spark/report/", "Reports"),
        ("/admin/", "Overview"),
    ],
)
def test_one_light_is_on_in_the_side_bar(operator: Client, path: str, title: str) -> None:
    groups = operator.get(path).context["sidebar_navigation"]
    lit = [item["title"] for group in groups for item in group["items"] if item["active"]]
    assert lit == [title]


def test_a_node_of_one_worker_shows_it(operator: Client) -> None:
    me = WorkerId("host:1", "epoch-1", "host", 1)
    register_alone(me, Lease("epoch-1", 5.0, True))
    assert Worker.objects.count() == 1
    assert "host:1" in text_of(operator, "/admin/msgnode/worker/")


def test_results_of_tasks_have_names_and_no_script_of_their_own(operator: Client) -> None:
    assert django_settings.CELERY_RESULT_EXTENDED
    result = TaskResult.objects.create(
        task_id="x", task_name="spark.hourly", periodic_task_name="hourly traffic report",
        worker="celery@host", status="SUCCESS",
    )  # fmt: skip
    page = text_of(operator, "/admin/django_celery_results/taskresult/")
    assert "hourly traffic report" in page
    assert "celery@host" in page
    page = text_of(operator, f"/admin/django_celery_results/taskresult/{result.pk}/change/")
    assert "spark.hourly" in page or "hourly traffic report" in page


def test_what_the_node_schedules_itself_is_not_offered_to_be_deleted(operator: Client) -> None:
    every = CrontabSchedule.objects.create(minute="5")
    built_in, own = (
        PeriodicTask.objects.create(name=name, task="spark.hourly", crontab=every)
        for name in ("hourly traffic report", "one of my own")
    )
    base = "/admin/django_celery_beat/periodictask"
    page = text_of(operator, f"{base}/{built_in.pk}/change/")
    assert f"{base}/{built_in.pk}/delete/" not in page
    assert f"{base}/{own.pk}/delete/" in text_of(operator, f"{base}/{own.pk}/change/")
    assert operator.post(f"{base}/{built_in.pk}/delete/", {"post": "yes"}).status_code == 403
    chosen = {"action": "delete_selected", "_selected_action": [built_in.pk, own.pk], "post": "yes"}
    assert operator.post(f"{base}/", chosen).status_code == 403
    assert PeriodicTask.objects.filter(pk__in=[built_in.pk, own.pk]).count() == 2


def test_pages_of_the_schedule_have_no_script_between_their_lines(operator: Client) -> None:
    """The policy of the page would block it."""
    every = CrontabSchedule.objects.create(minute="5")
    task = PeriodicTask.objects.create(name="mine", task="spark.hourly", crontab=every)
    for path in (f"periodictask/{task.pk}/change", "periodictask/add", "crontabschedule/add"):
        page = text_of(operator, f"/admin/django_celery_beat/{path}/")
        scripts = re.findall(r"<script(?![^>]*(?:src=|application/json))[^>]*>", page)
        assert scripts == [], path


@pytest.mark.parametrize("term", ["x", "6f1c1fb8-55a1-4d0a-9c5d-2f3e8c1b7a90", "a://b/c", "7"])
def test_every_list_that_offers_a_search_can_be_searched(operator: Client, term: str) -> None:
    lists = [each.opts for each in CONSOLE._registry.values() if each.search_fields]
    assert len(lists) > 30
    for opts in lists:
        path = reverse(f"admin:{opts.app_label}_{opts.model_name}_changelist")
        assert operator.get(path, {"q": term}).status_code == 200, path


def test_a_push_endpoint_is_found_by_its_user_and_by_its_runtime(operator: Client) -> None:
    now = timezone.now()
    for name in ("alice", "bob"):
        PushEndpoint.objects.create(
            id=name, subject=name, user_url=f"user://localhost/{name}", address="x://localhost/x",
            runtime_url=f"runtime://localhost/{name}", renewed_at=now, expires_at=now,
        )  # fmt: skip
    for beginning in ("user://localhost/ali", "runtime://localhost/ali"):
        page = text_of(operator, f"/admin/msgnode/pushendpoint/?q={beginning}")
        assert "runtime://localhost/alice" in page
        assert "runtime://localhost/bob" not in page


def test_a_viewer_is_not_offered_to_roll_back(client: Client) -> None:
    from policies.authoring import pap

    pap.publish()
    pap.publish()
    viewer = User.objects.create_user("viewer", is_staff=True)
    viewer.groups.add(Group.objects.get(name=roles.VIEWER))
    client.force_login(viewer)
    assert "Roll back" not in text_of(client, "/admin/policies/version/")


@pytest.mark.parametrize("path", ["/nopage", "/admin/nothing/here/"])
def test_a_page_that_is_not_there_says_so_in_the_nodes_look(operator: Client, path: str) -> None:
    answer = operator.get(path)
    assert answer.status_code == 404
    assert b"There is no such page" in answer.content
    assert b"access.css" in answer.content


def test_browsers_find_an_icon(client: Client) -> None:
    assert client.get("/favicon.ico")["Location"].endswith("icon.svg")


def test_a_run_under_way_is_not_said_to_be_done_and_its_pages_follow_it(operator: Client) -> None:
    """Its last steps take minutes, and the rows are known at the end."""
    now = timezone.now()
    run = ReportRun.objects.create(
        kind="hourly", start=now, end=now, state=ReportRun.State.RUNNING, trigger="operator",
        progress=1.0, step="storing reports",
    )  # fmt: skip
    page = operator.get("/admin/spark/reportrun/").content.decode()
    assert "99% storing reports" in page and "100%" not in page
    assert re.search(r"field-rows_text[^>]*>\s*–", page)
    assert "data-live-list" in page
    page = operator.get(f"/admin/spark/reportrun/{run.pk}/change/").content.decode()
    assert "99% storing reports" in page and "data-live-detail" in page
    ReportRun.objects.update(state=ReportRun.State.DONE, step="", rows_read=300_000)
    assert "300,000" in operator.get("/admin/spark/reportrun/").content.decode()
