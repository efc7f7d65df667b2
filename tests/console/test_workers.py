"""What an operator sees of workers that are joined."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from io import StringIO
from time import time
from typing import Any

import msgspec
import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from msgnode.console.key_figures import is_heard
from msgnode.models import AuditEntry, ControlMessage, NodeSample, Worker
from msgnode.monitoring.samples import Sample
from msgnode.resources import version
from msgnode.workers import membership_store
from msgnode.workers.worker_process import WorkerId

pytestmark = pytest.mark.django_db

EVEN = "/admin/msgnode/worker/even/"
LINK = {
    **{"to": "host:2", "state": "up", "batches": 1234, "waiting_bytes": 4321, "resent": 3},
    **{"gaps": 2, "missed": 3, "lost": 7},
}


@pytest.fixture
def workers() -> None:
    one, other = (
        WorkerId(f"host:{number}", f"epoch-{number}", "host", number) for number in (1, 2)
    )
    membership_store.register(one, 5.0)
    membership_store.register(other, 5.0)
    ready = membership_store.READY
    assert membership_store.renew(one.epoch, 60.0, state=ready, sessions=12, links=[LINK])
    silent = timezone.now() - timedelta(minutes=1)
    Worker.objects.filter(epoch=other.epoch).update(seen_at=silent, lease_until=silent)


def test_the_list_shows_state_sessions_and_links(admin_client: Client, workers: None) -> None:
    page = admin_client.get("/admin/msgnode/worker/").content.decode()
    assert "host:1" in page
    assert "1 of 1 up, 2 losses noticed, 7 gaps signalled" in page
    assert "not heard of" in page
    assert "ended 1\xa0minute ago" in page
    page = admin_client.get("/admin/msgnode/worker/epoch-1/change/").content.decode()
    assert "1234" in page


def test_a_worker_with_a_long_lease_is_heard_of_while_it_holds_it(
    workers: None, settings: Any
) -> None:
    settings.NODE = {**settings.NODE, "WORKER_TIMEOUT": 120.0}
    now = timezone.now()
    Worker.objects.update(seen_at=now - timedelta(seconds=40))
    assert all(is_heard(each, now) for each in Worker.objects.all())
    Worker.objects.update(seen_at=now - timedelta(seconds=121))
    assert not any(is_heard(each, now) for each in Worker.objects.all())


def test_a_lease_that_has_just_ended_is_told_in_seconds(
    admin_client: Client, workers: None
) -> None:
    just_now = timezone.now() - timedelta(seconds=5)
    Worker.objects.filter(epoch="epoch-2").update(lease_until=just_now)
    page = admin_client.get("/admin/msgnode/worker/").content.decode()
    assert re.search(r"ended \d+ s ago", page)


def test_node_status_names_the_workers_and_their_links(workers: None) -> None:
    said = StringIO()
    with pytest.raises(CommandError, match="15 seconds"):  # no component has reported
        call_command("node_status", "--json", stdout=said)
    joined = json.loads(said.getvalue())["joined"]
    assert [line["state"] for line in joined] == ["ready", "not heard of"]
    assert joined[0]["links"] == [LINK]
    assert joined[0]["lease_seconds"] > 0 > joined[1]["lease_seconds"]
    said = StringIO()
    with pytest.raises(CommandError):
        call_command("node_status", stdout=said)
    one, other = (line for line in said.getvalue().splitlines() if " host:" in line and "," in line)
    assert re.search(r"lease runs for [\d.]+ s, 1 of 1 links up, 4,321 bytes wait for others", one)
    assert re.search(r"not heard of +0 sessions, lease ended [\d.]+ s ago", other)


def test_signs_of_life_are_no_changes_of_an_operator(workers: None) -> None:
    assert not AuditEntry.objects.exists()


def test_the_list_shows_what_each_worker_does_and_its_version(
    admin_client: Client, workers: None
) -> None:
    minute = Sample(time(), 60.0, messages=600, copies=1200, bytes_in=6_000, cpu=15.0)
    figures = msgspec.to_builtins(minute)
    NodeSample.objects.create(worker="host:1", span=60, at=timezone.now(), figures=figures)
    page = admin_client.get("/admin/msgnode/worker/").content.decode()
    assert "10.0/s in, 20.0/s out" in page
    assert "25 %" in page
    assert version() in page


def test_the_only_worker_that_is_ready_is_neither_drained_nor_evened_out(
    admin_client: Client, workers: None
) -> None:
    form = {"action": "drain", "_selected_action": ["epoch-1"], "confirmed": "yes"}
    page = admin_client.post("/admin/msgnode/worker/", form, follow=True).content.decode()
    assert "host:1 is the only worker that is ready" in page
    page = admin_client.post(EVEN, {"confirmed": "yes"}, follow=True).content.decode()
    assert "there is none to share sessions with" in page
    assert not ControlMessage.objects.exists()


def test_a_worker_is_drained_and_all_are_evened_out(admin_client: Client, workers: None) -> None:
    other = Worker.objects.filter(epoch="epoch-2")
    later = timezone.now() + timedelta(minutes=1)
    other.update(state=membership_store.READY, seen_at=timezone.now(), lease_until=later)
    form = {"action": "drain", "_selected_action": ["epoch-1"], "confirmed": "yes"}
    page = admin_client.post("/admin/msgnode/worker/", form, follow=True).content.decode()
    assert "tells its 12 sessions to come back" in page
    assert "until all are even within 10%" in admin_client.get(EVEN).content.decode()
    assert ControlMessage.objects.count() == 1, "it asks first"
    page = admin_client.post(EVEN, {"confirmed": "yes"}, follow=True).content.decode()
    assert "tell runtimes to come back" in page
    sent = ControlMessage.objects.order_by("id").values_list("kind", "payload")
    assert list(sent) == [("worker.restart", {"epoch": "epoch-1"}), ("workers.even", {})]
    noted = set(AuditEntry.objects.values_list("action", flat=True))
    assert noted == {"worker.restart", "worker.even"}
