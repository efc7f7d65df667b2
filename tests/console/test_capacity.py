"""The page of capacity: what is measured, how growth is told, and when it is not."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

import msgspec
import pytest
from django.test import Client
from django.utils import timezone

from msgnode.console import capacity
from msgnode.console.capacity import DAY, growth
from msgnode.models import NodeSample
from msgnode.monitoring.samples import HOUR, MINUTE, Sample

GIGABYTE = 10**9
URL = "/admin/capacity/"


def rows(now: datetime, hours: int, workers: int = 1, disk_a_day: float = 0.0) -> None:
    """Samples of so many hours, with users who come by day; the disk fills by so much a day."""
    made = []
    for ago in range(hours, -1, -1):
        at = (now - timedelta(hours=ago)).replace(minute=0, second=0, microsecond=0)
        people = round(500 + 400 * math.sin(at.hour / 24 * math.tau))
        left = round(100 * GIGABYTE + disk_a_day * ago / 24)
        machine = [8 * GIGABYTE, 6 * GIGABYTE, 500 * GIGABYTE, left]
        figures = {"seconds": 3600.0, "messages": 36_000, "cpu": 360.0, "sockets": people,
                   "sessions": people, "machine": machine}  # fmt: skip
        for number in range(workers):
            sample = Sample(at=at.timestamp(), **figures)  # type: ignore[arg-type]
            made.append(NodeSample(worker=f"w{number}", span=HOUR, at=at,
                                   figures=msgspec.to_builtins(sample)))  # fmt: skip
    for number in range(workers):
        minute = Sample(at=now.timestamp(), seconds=60.0, messages=600, cpu=6.0, sockets=700,
                        sessions=800, machine=machine)  # fmt: skip
        made.append(NodeSample(worker=f"w{number}", span=MINUTE, at=now,
                               figures=msgspec.to_builtins(minute)))  # fmt: skip
    NodeSample.objects.bulk_create(made)


def test_the_rhythm_of_days_is_no_growth_and_one_bad_day_does_not_decide() -> None:
    hours = [(hour * 3600.0, 500 + 400 * math.sin(hour / 24 * math.tau)) for hour in range(240)]
    assert growth(hours) == pytest.approx(0, abs=1)
    grown = [(at, value + 10 * at / DAY) for at, value in hours]
    grown[100] = (grown[100][0], 50_000.0)
    grown[-1] = (grown[-1][0], 0.0)
    assert growth(grown) == pytest.approx(10, rel=0.1)
    first = [(hour * 3600.0, 100.0 + hour) for hour in range(24)]
    assert growth(first) == pytest.approx(24)


def test_too_little_history_tells_no_growth() -> None:
    assert growth([]) is None
    assert growth([(0.0, 1.0)]) is None
    assert growth([(hour * 3600.0, 1.0 + hour) for hour in range(6)]) is None
    assert growth([(hour * 3600.0, 1.0 + hour) for hour in range(7)]) is not None


def test_the_page_says_when_the_disk_is_full_and_what_workers_hold_together(
    operator: Client, django_assert_max_num_queries
) -> None:
    rows(timezone.now(), 240, workers=2, disk_a_day=5 * GIGABYTE)
    with django_assert_max_num_queries(8):
        page = operator.get(URL)
    lines = {line["title"]: line for line in page.context["lines"]}
    assert lines["Disk"]["when"] == "about 3 weeks"  # 100 GB are left
    assert lines["Disk"]["share"] == 80.0
    assert lines["Disk"]["is_near"]
    assert lines["Sessions"]["now"] == "1,600"
    assert lines["Sessions"]["when"] == "does not grow"
    assert lines["Messages a second"]["now"] == "20"
    assert lines["Messages a second"]["limit"] == "200"  # at a tenth of two cores
    text = page.content.decode()
    assert "Growth is measured over" in text
    assert text.count("<polyline") == 7


def test_a_new_node_says_that_there_is_too_little_history(operator: Client) -> None:
    assert "There are no samples of an hour yet" in operator.get(URL).content.decode()
    rows(timezone.now(), 3)
    page = operator.get(URL)
    assert "too little history to tell growth: 4 hours. It takes 6" in page.content.decode()
    assert {line["when"] for line in page.context["lines"]} == {"too little history"}


def test_samples_of_an_earlier_version_tell_all_but_the_machine(operator: Client) -> None:
    rows(timezone.now(), 100)
    for each in NodeSample.objects.all():
        NodeSample.objects.filter(pk=each.pk).update(figures=each.figures[:14])
    lines = {line["title"]: line for line in operator.get(URL).context["lines"]}
    assert lines["Sessions"]["now"] == "800"
    assert (lines["Disk"]["now"], lines["Disk"]["share"]) == ("–", None)


def test_a_worker_stores_what_its_machine_has_left(db) -> None:
    from msgnode.monitoring.sampler import Sampler

    sampler = Sampler.__new__(Sampler)
    sampler._worker = "w"
    sampler._save(MINUTE, Sample(at=timezone.now().timestamp()))
    (row,) = NodeSample.objects.all()
    memory, memory_left, disk, disk_left = msgspec.convert(row.figures, Sample).machine
    assert memory > memory_left > 0
    assert disk >= disk_left > 0
    assert capacity._machine([msgspec.convert(row.figures, Sample)], 2) == (disk, disk_left)


def test_who_may_not_see_sessions_does_not_see_it(client: Client, django_user_model) -> None:
    client.force_login(django_user_model.objects.create_user("nobody", is_staff=True))
    assert client.get(URL).status_code == 403
