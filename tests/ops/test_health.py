"""What the web process says of itself; a worker's answers are tested on running nodes."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError
from django.test import Client
from django.utils import timezone

from msgnode.models import Worker
from msgnode.ops import health

pytestmark = pytest.mark.django_db


def lease(epoch: str, seconds: float) -> None:
    until = timezone.now() + timedelta(seconds=seconds)
    Worker.objects.create(
        epoch=epoch, name=epoch, host="h", pid=1, state="ready", lease_until=until
    )


def test_the_web_process_is_ready_with_the_database_and_counts_leases(
    client: Client, settings: Any
) -> None:
    settings.ROLE = "web"
    lease("serves", 60)
    lease("is gone", -60)
    answer = client.get("/health/ready")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ready", "checks": {"database": True}, "workers": 1}
    told = client.get("/metrics").content.decode()
    assert "python_info" in told
    assert set(re.findall(r"msgnode_\w+", told)) == {"msgnode_faults_total"}


def test_the_web_process_is_not_ready_without_the_database(
    client: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ROLE = "web"

    def away(**_: object) -> None:
        raise DatabaseError("away")

    monkeypatch.setattr(health.Worker.objects, "filter", away)
    answer = client.get("/health/ready")
    assert answer.status_code == 503
    assert answer.json()["checks"] == {"database": False}
