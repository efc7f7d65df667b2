"""What processes say of themselves to a supervisor, whatever they are busy with."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError
from django.test import Client, RequestFactory
from django.utils import timezone

from msgnode.core import database_errors
from msgnode.core.database_errors import NO_CONNECTION_LEFT, Connecting
from msgnode.models import Worker
from msgnode.ops import health
from msgnode.ops.health import Health
from msgnode.ops.metrics import metrics
from msgnode.resources import version
from tests.node import eventually

pytestmark = pytest.mark.django_db(transaction=True)


async def passed_on(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 404, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


async def ask(asked: Health, path: str, method: str = "GET") -> tuple[int, dict[str, Any]]:
    """The status and the body of an answer."""
    told: list[dict[str, Any]] = []

    async def send(event: dict[str, Any]) -> None:
        told.append(event)

    async with asyncio.timeout(20):
        await asked({"type": "http", "path": path, "method": method}, None, send)
    return told[0]["status"], json.loads(told[1]["body"] or b"{}")


async def lease(epoch: str, seconds: float) -> None:
    until = timezone.now() + timedelta(seconds=seconds)
    await Worker.objects.acreate(
        epoch=epoch, name=epoch, host="h", pid=1, state="ready", lease_until=until
    )


async def test_the_web_process_is_ready_with_the_database_and_counts_leases() -> None:
    web = Health(passed_on, None)
    await lease("serves", 60)
    await lease("is gone", -60)
    status, body = await ask(web, "/health/ready")
    expected = {"status": "ready", "checks": {"database": True}, "workers": 1}
    assert (status, body) == (200, {**expected, "version": version()})
    assert await ask(web, "/health/live") == (200, {"status": "live", "version": version()})
    assert await ask(web, "/health/live", "HEAD") == (200, {})
    assert (await ask(web, "/health/other"))[0] == 404


def test_the_web_process_tells_its_own_metrics(client: Client, settings: Any) -> None:
    settings.ROLE = "web"
    told = client.get("/metrics").content.decode()
    assert "python_info" in told
    assert set(re.findall(r"msgnode_\w+", told)) == {"msgnode_faults_total", "msgnode_build_info"}


@pytest.mark.parametrize(
    ("said", "is_ready", "words"),
    [
        ("connection refused", False, "The database is out of reach or does not answer"),
        ("FATAL: sorry, too many clients already", True, NO_CONNECTION_LEFT),
    ],
)
async def test_the_web_process_tells_a_database_that_is_full_from_one_that_is_away(
    said: str, is_ready: bool, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**_: object) -> None:
        raise OperationalError from Exception(said)

    monkeypatch.setattr(Worker.objects, "filter", refused)
    status, body = await ask(Health(passed_on, None), "/health/ready")
    assert status == (200 if is_ready else 503)
    assert body["checks"] == {"database": is_ready}
    assert body["problems"] == {"database": words}


async def test_a_database_that_does_not_answer_is_asked_once_for_all_who_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_answer = threading.Event()
    is_asked = threading.Event()
    asked: list[object] = []

    def stuck(**_: object) -> Any:
        asked.append(1)
        is_asked.set()
        may_answer.wait(20)
        return SimpleNamespace(count=lambda: 3)

    monkeypatch.setattr(health, "PATIENCE", 0.05)
    monkeypatch.setattr(Worker.objects, "filter", stuck)
    web = Health(passed_on, None)
    told = await asyncio.gather(*(ask(web, "/health/ready") for _ in range(5)))
    assert {status for status, _ in told} == {503}
    assert is_asked.wait(20)
    assert len(asked) == 1
    may_answer.set()
    async with asyncio.timeout(20):
        while (await ask(web, "/health/ready"))[1]["workers"] != 3:
            await eventually()


async def test_a_worker_answers_while_all_threads_are_busy_and_says_what_its_lease_knows() -> None:
    known = SimpleNamespace(is_held=True, has_answer=True, trouble="")
    parts = SimpleNamespace(
        lease=known, cluster=SimpleNamespace(meets_others=True, number_ready=0),
        path=SimpleNamespace(problem=""), subsystems=(),
        monitoring=SimpleNamespace(programs=SimpleNamespace(all_run=False)),
    )  # fmt: skip
    node: Any = SimpleNamespace(is_ready=True, runs_all_tasks=True, secrets_fault="", parts=parts)
    worker = Health(passed_on, node)
    may_end = threading.Event()
    busy = [asyncio.ensure_future(asyncio.to_thread(may_end.wait, 20)) for _ in range(64)]
    busy.append(asyncio.ensure_future(sync_to_async(may_end.wait)(20)))
    try:
        status, body = await ask(worker, "/health/ready")
        assert (status, body["checks"]["jobs"]) == (200, False), "it serves without them"
        known.trouble = "The database's disk is full"
        status, body = await ask(worker, "/health/ready")
        assert (status, body["problems"]) == (200, {"database": known.trouble})
        known.has_answer = False
        status, body = await ask(worker, "/health/ready")
        assert (status, body["checks"]["database"]) == (503, False)
    finally:
        may_end.set()
        await asyncio.gather(*busy)


def test_a_refused_connection_counts_until_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(database_errors, "monotonic", lambda: now)
    connecting = Connecting()
    connecting.failed(Exception("could not connect: connection refused"))
    assert not connecting.problem
    connecting.failed(Exception("FATAL: too many connections for role"))
    assert connecting.problem == NO_CONNECTION_LEFT
    connecting.succeeded()
    assert not connecting.problem
    connecting.failed(Exception("FATAL: sorry, too many clients already"))
    now += 31
    assert not connecting.problem


def test_the_metrics_of_a_worker_that_cannot_be_asked_for_are_refused() -> None:
    answer = metrics(RequestFactory().get("/metrics?worker=bogus"))
    assert answer.status_code == 400
    assert b"`this`" in answer.content
