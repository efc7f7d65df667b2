"""What the journal holds is written down, done and forgotten in time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from django.core import mail
from django.utils import timezone

from msgnode.celery import app
from msgnode.models import Alarm
from msgnode.node.base import send_task
from msgnode.storage import grouping
from msgnode.storage.believed_clock import ALARM as CLOCK_JUMPED
from msgnode.tasks import purge_decision_log
from policies import tasks
from policies.enforcement import decision_log
from policies.enforcement.decision_buffer import Entry, PendingObligation
from policies.enforcement.obligations import MAIL_SECONDS, Obligations
from policies.engine.language import ObligationExpression
from policies.models import DecisionEntry, RuleHits
from tests.fakes import Clock

pytestmark = pytest.mark.django_db

ENTRY = Entry(
    at=1_500_000_000.0,
    direction="in",
    effect="deny",
    passes=False,
    shadow="",
    path="S/P/R",
    version=3,
    type="create",
    sender="hyperty://a.com/1",
    to="hyperty://b.com/2",
    username="bob@a.com",
    session="s",
    message="{}",
    errors="",
    microseconds=12.5,
)


def write(entries: list[Entry]) -> None:
    grouping.insert(DecisionEntry, decision_log.rows(entries))


def test_entries_become_rows_however_long_their_texts():
    write([ENTRY, replace(ENTRY, sender="x" * 5000, path="y" * 5000)])
    first, second = DecisionEntry.objects.order_by("id")
    assert (first.at.year, first.path, first.version) == (2017, "S/P/R", 3)
    assert (len(second.sender), len(second.path)) == (600, 255)


def test_hits_add_up():
    for _ in range(2):
        decision_log.add_hits(Counter({("S", "P", "R"): 5, ("S", "P", "Q"): 1}))
    assert dict(RuleHits.objects.values_list("path", "hits")) == {"S/P/R": 10, "S/P/Q": 2}


def test_old_entries_are_forgotten_and_new_ones_kept(settings):
    settings.POLICY = {**settings.POLICY, "LOG_DAYS": 2.0}
    write([ENTRY] * 3)
    kept = replace(ENTRY, at=(timezone.now() - timedelta(days=1)).timestamp())
    write([kept])
    assert purge_decision_log() == 3
    assert DecisionEntry.objects.count() == 1


@pytest.mark.parametrize("years", [1, 30])
def test_nothing_is_forgotten_on_the_word_of_a_clock_that_has_jumped(
    settings, tmp_path, monkeypatch, years
):
    settings.DATA_DIR = tmp_path
    settings.POLICY = {**settings.POLICY, "LOG_DAYS": 30.0}
    now = timezone.now()
    for days in (1, 29, 31):
        write([replace(ENTRY, at=(now - timedelta(days=days)).timestamp())])
    assert purge_decision_log() == 1
    monkeypatch.setattr("msgnode.tasks.timezone.now", lambda: now + timedelta(days=365 * years))
    for _ in range(2):
        assert purge_decision_log() == 0
    assert DecisionEntry.objects.count() == 2
    assert Alarm.objects.filter(kind=CLOCK_JUMPED, cleared_at=None).exists()


def test_beyond_what_is_kept_at_most_the_oldest_are_forgotten(monkeypatch):
    monkeypatch.setattr(decision_log, "ENTRIES_AT_MOST", 2)
    now = timezone.now().timestamp()
    write([replace(ENTRY, at=now, version=number) for number in range(5)])
    assert decision_log.purge(timezone.now() - timedelta(days=30)) == 3
    assert set(DecisionEntry.objects.values_list("version", flat=True)) == {3, 4}


def test_a_mail_is_sent_to_everybody_named():
    tasks.send_mail_of_policy(["a@x.com", "b@x.com"], "R", "deny: create from a to b")
    (sent,) = mail.outbox
    assert sent.to == ["a@x.com", "b@x.com"]
    assert sent.subject == "Policy R"
    assert sent.body == "deny: create from a to b"


def deed(name, value, source="R", why="deny: create"):
    return PendingObligation(ObligationExpression(name, value, source), why)


def test_a_mail_is_handed_to_the_nodes_celery_worker(settings):
    Path(settings.CELERY_BROKER_TRANSPORT_OPTIONS["data_folder_in"]).mkdir(
        parents=True, exist_ok=True
    )
    settings.CELERY_TASK_ALWAYS_EAGER = False
    Obligations(send_task).execute([deed("emailto", "a@x.com")])
    with app.connection() as connection, connection.SimpleQueue("celery") as queue:
        message = queue.get(timeout=5)
        message.ack()
    assert message.headers["task"] == tasks.send_mail_of_policy.name
    assert message.payload[0] == [["a@x.com"], "R", "deny: create"]


def test_a_rule_mails_at_once_and_then_what_has_come_in_a_minute():
    sent, clock = [], Clock()
    obligations = Obligations(lambda _, mail: sent.append(mail), clock)
    obligations.execute([deed("emailto", "a@x.com", why="first")])
    assert sent == [(["a@x.com"], "R", "first")]
    for second in range(int(MAIL_SECONDS) - 1):
        clock.now += 1.0
        assert not obligations.is_due
        flood = [deed("emailto", "a@x.com", why=f"deny {second}-{n}") for n in range(100)]
        obligations.execute([*flood, *([deed("emailto", "a@x.com", "Q")] if not second else ())])
    assert [each[1] for each in sent] == ["R", "Q"]
    clock.now += 1.0
    assert obligations.is_due
    obligations.execute([])
    lines = sent[2][2].splitlines()
    assert (lines[0], len(lines), lines[-1]) == ("deny 0-0", 21, "and 5880 more")


def test_no_mail_waits_when_the_node_stops():
    sent = []
    obligations = Obligations(lambda _, mail: sent.append(mail[2]), Clock())
    obligations.execute([deed("emailto", "a@x.com", why="first")])
    obligations.execute([deed("emailto", "a@x.com", why="second")])
    assert sent == ["first"]
    obligations.execute([], is_last=True)
    assert sent == ["first", "second"]


def test_of_rules_that_mail_no_more_nothing_is_kept():
    clock = Clock()
    obligations = Obligations(lambda *_: None, clock)
    obligations.execute([deed("emailto", "a@x.com")])
    clock.now += MAIL_SECONDS
    obligations.execute([])
    assert not obligations.is_due
    assert not obligations._mails


def test_a_mail_that_cannot_be_handed_over_stops_no_other_deed(caplog):
    def fail(*_):
        raise OSError("no broker")

    caplog.set_level("INFO")
    Obligations(fail).execute([deed("emailto", "a@x.com"), deed("log", "seen")])
    assert "could not be handed over" in caplog.text
    assert "seen" in caplog.text
