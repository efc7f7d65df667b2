"""Alarm rules from a figure to who is told: raised once, told once, and nobody else held up."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from django.core import mail
from django.utils import timezone

from msgnode import tasks
from msgnode.models import Alarm, AlarmNotice, AlarmRule, WebhookHost
from msgnode.monitoring.alarm_rules import AGAIN, EVERY, AlarmRules
from msgnode.monitoring.samples import Sample
from msgnode.storage import notices

pytestmark = pytest.mark.django_db(transaction=True)


class Writer:
    """Keeps what is to be written until the stage writes it."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def submit(self, change: Any) -> None:
        self.waiting.append(change.action)


class Stage:
    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.samples = [Sample(at=1.0, seconds=1.0, messages=500, latencies=[1])]
        self.is_whole = True
        self.leads = True
        self.asked = 0
        self.writer = Writer()
        self.rules = AlarmRules(
            self.gather, self, self.writer, (1e-3,), folder, lambda: self.now,
        )  # type: ignore[arg-type]  # fmt: skip

    async def take(self) -> bool:
        return self.leads

    async def gather(self) -> tuple[list[Sample], bool]:
        self.asked += 1
        return self.samples, self.is_whole

    async def seconds(self, number: float) -> None:
        for _ in range(int(number / EVERY)):
            self.now += EVERY
            await self.rules.look()
            while self.writer.waiting:
                await asyncio.to_thread(self.writer.waiting.pop(0))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def make(**changes: Any) -> AlarmRule:
    return await AlarmRule.objects.acreate(
        **{"name": "flood", "figure": "messages", "limit": 400, "seconds": 6, **changes}
    )


async def standing() -> list[str]:
    rows = Alarm.objects.filter(cleared_at=None, kind="threshold")
    return [each.subject async for each in rows]


async def test_a_flood_raises_its_alarm_and_its_end_clears_it(stage: Stage) -> None:
    await make(mail_to="a@example.org")
    await stage.seconds(4)
    assert await standing() == []
    await stage.seconds(6)
    assert await standing() == ["flood"]
    alarm = await Alarm.objects.aget()
    assert alarm.text == "messages in: 500, above 400 a second for 6 s."
    stage.samples[0].messages = 3
    await stage.seconds(10)
    assert await standing() == []
    said = [each.is_raised async for each in AlarmNotice.objects.order_by("id")]
    assert said == [True, False]


async def test_nobody_is_asked_while_there_is_no_rule(stage: Stage) -> None:
    await stage.seconds(20)
    assert stage.asked == 0


async def test_a_worker_that_does_not_answer_leaves_sums_unknown(stage: Stage) -> None:
    await make(is_below=True, limit=1_000)
    await make(name="dead", figure="workers", is_below=True, limit=2)
    stage.is_whole = False
    await stage.seconds(20)
    assert await standing() == ["dead"]


async def test_only_who_leads_looks_and_who_comes_to_lead_knows_what_stands(
    stage: Stage, tmp_path: Path
) -> None:
    await make(mail_to="a@example.org")
    other = Stage(tmp_path)
    other.leads = False
    await stage.seconds(10)
    await other.seconds(10)
    assert other.asked == 0
    assert await standing() == ["flood"]
    other.leads = True  # the first is frozen, and wakes up later
    await other.seconds(10)
    await stage.seconds(10)
    assert (await Alarm.objects.aget()).count == 1
    assert await AlarmNotice.objects.acount() == 1


async def test_two_who_lead_at_once_tell_once(stage: Stage, tmp_path: Path) -> None:
    await make(mail_to="a@example.org")
    other = Stage(tmp_path)
    for _ in range(8):
        await stage.seconds(EVERY)
        await other.seconds(EVERY)
    assert await AlarmNotice.objects.acount() == 1
    for each in (stage, other):
        each.samples[0].messages = 0
    for _ in range(8):
        await stage.seconds(EVERY)
        await other.seconds(EVERY)
    assert await standing() == []
    assert await AlarmNotice.objects.acount() == 2


async def test_what_an_operator_clears_while_it_goes_on_is_raised_again(stage: Stage) -> None:
    await make()
    await stage.seconds(10)
    await Alarm.objects.aupdate(cleared_at=timezone.now())
    await stage.seconds(AGAIN + 20)
    assert await standing() == ["flood"]


async def test_a_rule_that_goes_takes_its_alarm_along(stage: Stage) -> None:
    await make()
    await stage.seconds(10)
    await AlarmRule.objects.aupdate(is_enabled=False)
    stage.rules.changed()
    await stage.seconds(EVERY)
    assert await standing() == []


async def test_alarms_of_the_node_itself_can_be_told_and_ones_own_are_not_counted(
    stage: Stage,
) -> None:
    await make()
    await make(name="any", figure="alarms", limit=0, seconds=0)
    await stage.seconds(30)
    assert await standing() == ["flood"]
    await Alarm.objects.acreate(kind="worker-down", subject="w", text="gone")
    await stage.seconds(20)
    assert set(await standing()) == {"flood", "any"}


async def test_a_full_disk_is_a_figure(stage: Stage) -> None:
    await make(name="disk", figure="disk", is_below=True, limit=1e12, seconds=0)
    await stage.seconds(EVERY)
    assert await standing() == ["disk"]


# --- who is told ----------------------------------------------------------------------------------


class Hook(BaseHTTPRequestHandler):
    """A webhook: says what it was told, and answers as its server is set to."""

    server: Any

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        self.server.told.append(json.loads(self.rfile.read(size)))
        self.server.answers.wait(20)
        self.send_response(self.server.status)
        self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def webhook(status: int = 204) -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    server.told, server.status, server.answers = [], status, threading.Event()
    server.answers.set()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.answers.set()
        server.shutdown()
        server.server_close()


def rule_of(server: Any, **more: Any) -> AlarmRule:
    url = f"http://127.0.0.1:{server.server_port}/alarm/secret"
    return AlarmRule.objects.create(name="flood", figure="messages", limit=1, webhook=url, **more)


@pytest.fixture(autouse=True)
def hosts(settings: Any) -> None:
    settings.ALARM_WEBHOOK_HOSTS = ["127.0.0.1"]


def test_a_mail_and_a_webhook_are_told_once() -> None:
    with webhook() as server:
        notices.raise_for(rule_of(server, mail_to="a@example.org\nb@example.org").pk, "It floods.")
        assert tasks.send_notices() == {"sent": 3, "failed": 0}
        assert tasks.send_notices() == {"sent": 0, "failed": 0}
        (told,) = server.told
    assert (told["alarm"], told["state"], told["text"]) == ("flood", "raised", "It floods.")
    assert sorted(each.to[0] for each in mail.outbox) == ["a@example.org", "b@example.org"]
    assert "It floods." in mail.outbox[0].body


@pytest.mark.parametrize("status", [302, 404, 500])
def test_what_fails_is_tried_later_and_at_last_an_alarm(status: int) -> None:
    with webhook(status) as server:
        notices.raise_for(rule_of(server).pk, "It floods.")
        for attempt in range(notices.MOST_ATTEMPTS):
            assert tasks.send_notices() == {"sent": 0, "failed": 1}
            assert tasks.send_notices() == {"sent": 0, "failed": 0}  # not due yet
            notice = AlarmNotice.objects.get()
            assert notice.attempts == attempt + 1
            assert str(status) in notice.error
            AlarmNotice.objects.update(due_at=timezone.now())
        assert tasks.send_notices() == {"sent": 0, "failed": 0}
        assert len(server.told) == notices.MOST_ATTEMPTS
        alarm = Alarm.objects.get(kind="notice-failed")
        assert "secret" not in alarm.subject + alarm.text
        server.status = 204
        notices.clear_for(AlarmRule.objects.get().pk, "Over.")
        tasks.send_notices()
    assert not Alarm.objects.filter(kind="notice-failed", cleared_at=None).exists()


def test_a_webhook_that_never_answers_holds_up_no_mail(monkeypatch: Any) -> None:
    monkeypatch.setattr(notices, "TIMEOUT", 0.3)
    with webhook() as server:
        server.answers.clear()
        rule = rule_of(server)
        for number in range(5):
            notices.tell(rule, f"{number}", is_raised=True)
        other = AlarmRule.objects.create(
            name="other", figure="messages", limit=1, mail_to="a@example.org"
        )
        notices.tell(other, "well", is_raised=True)
        assert tasks.send_notices() == {"sent": 1, "failed": 1}
    assert len(mail.outbox) == 1


def test_a_host_that_is_taken_off_the_list_is_not_called(settings: Any) -> None:
    with webhook() as server:
        notices.raise_for(rule_of(server).pk, "It floods.")
        settings.ALARM_WEBHOOK_HOSTS = []
        assert tasks.send_notices() == {"sent": 0, "failed": 1}
        assert server.told == []


def test_a_silenced_rule_tells_nobody_and_its_alarm_stands() -> None:
    until = timezone.now() + timedelta(minutes=5)
    rule = AlarmRule.objects.create(
        name="quiet", figure="messages", limit=1, mail_to="a@example.org", silent_until=until
    )
    notices.raise_for(rule.pk, "It floods.")
    assert Alarm.objects.filter(kind="threshold", cleared_at=None).count() == 1
    assert not AlarmNotice.objects.exists()


def test_notices_that_nobody_sends_are_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(notices, "MOST_UNSENT", 3)
    rule = AlarmRule.objects.create(name="x", figure="messages", limit=1, mail_to="a@example.org")
    for number in range(6):
        notices.tell(rule, f"{number}", is_raised=True)
    assert AlarmNotice.objects.count() == 3
    assert Alarm.objects.filter(kind="notice-failed").count() == 1


@pytest.mark.parametrize(
    "url",
    [
        "ftp://127.0.0.1/", "http://10.0.0.1/", "http://user@127.0.0.1/", "http://", "x",
        "http://127.0.0.1.evil.example/", "http://[", "http://127.0.0.1:x/", "http://127.0.0.1/#a",
    ],
)  # fmt: skip
def test_a_webhook_elsewhere_is_refused(url: str) -> None:
    assert notices.webhook_fault(url)


def test_a_host_of_the_console_is_called_at_once_and_only_where_devices_webhooks_may_be(
    settings: Any,
) -> None:
    settings.ALARM_WEBHOOK_HOSTS = []
    with webhook() as server:
        rule = rule_of(server)
        WebhookHost.objects.create(host="127.0.0.1")
        assert notices.webhook_fault("https://127.0.0.1/x") == ""
        assert "https" in notices.webhook_fault(rule.webhook)
        for url in (rule.webhook, f"https://127.0.0.1:{server.server_port}/"):
            AlarmNotice.objects.all().delete()
            AlarmRule.objects.update(webhook=url)
            notices.tell(AlarmRule.objects.get(), "It floods.", is_raised=True)
            assert tasks.send_notices() == {"sent": 0, "failed": 1}
        assert "127.0.0.1" in AlarmNotice.objects.get().error
        assert server.told == []
        settings.WEBHOOK_NETWORKS = ["127.0.0.0/8"]
        AlarmRule.objects.update(webhook=rule.webhook)
        notices.tell(AlarmRule.objects.get(), "It floods.", is_raised=True)
        assert tasks.send_notices()["sent"] == 1
        WebhookHost.objects.all().delete()
        notices.tell(AlarmRule.objects.get(), "It floods.", is_raised=True)
        assert tasks.send_notices() == {"sent": 0, "failed": 1}
        assert len(server.told) == 1
