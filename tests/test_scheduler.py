"""Beat's scheduler: clocks set back, rhythms of operators, tasks that never come."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.test import RequestFactory
from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask

from msgnode.celery import app
from msgnode.scheduler import ScheduledTask, Scheduler
from msgnode.site_urls import CONSOLE
from spark import freshness
from spark.jobs.periods import Kind

pytestmark = pytest.mark.django_db(transaction=True)
NAME = "hourly traffic report"


class Scheduled(Scheduler):
    """Remembers what it runs instead of sending it to a broker."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        super().__init__(app=app)

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        self.ran.append(entry.name)

    def tick_all(self) -> list[str]:
        """All that is due now."""
        self.ran.clear()
        while not self.tick():
            pass
        return sorted(self.ran)


def a_task(**values: Any) -> PeriodicTask:
    PeriodicTask.objects.filter(name=NAME).delete()
    return PeriodicTask.objects.create(name=NAME, task="spark.hourly", **values)


def each_minute() -> IntervalSchedule:
    return IntervalSchedule.objects.create(every=60, period=IntervalSchedule.SECONDS)


@pytest.mark.parametrize("ahead", [timedelta(minutes=2), timedelta(days=3_000)])
def test_a_task_that_ran_while_the_clock_was_ahead_is_due(ahead: timedelta) -> None:
    a_task(interval=each_minute(), last_run_at=timezone.now() + ahead)
    scheduler = Scheduled()
    assert NAME in scheduler.tick_all()
    scheduler.sync()
    ran_at = PeriodicTask.objects.get(name=NAME).last_run_at
    assert ran_at is not None
    assert abs(ran_at - timezone.now()) < timedelta(minutes=1)
    assert NAME not in scheduler.tick_all()


def test_a_clock_that_is_set_back_while_beat_runs_keeps_no_task_waiting() -> None:
    a_task(interval=each_minute(), last_run_at=timezone.now())
    scheduler = Scheduled()
    scheduler.tick_all()
    # What is there when the clock was a year ahead until now:
    year = timedelta(days=365)
    scheduler._ticked_at = time.time() + year.total_seconds()
    scheduler._heap = [event._replace(time=event.time + 31_536_000) for event in scheduler._heap]
    scheduler._schedule[NAME].model.last_run_at = timezone.now() + year
    scheduler._dirty.add(NAME)
    assert NAME in scheduler.tick_all()


def test_what_an_operator_has_timed_stays_when_beat_is_started_again() -> None:
    Scheduled()
    nightly = CrontabSchedule.objects.create(minute="17", hour="3")
    task = PeriodicTask.objects.get(name=NAME)
    task.crontab, task.expire_seconds = nightly, 7
    task.save()
    Scheduled()
    task.refresh_from_db()
    assert (task.crontab, task.expire_seconds) == (nightly, None)


def test_reports_are_late_although_beat_keeps_starting_them() -> None:
    """Nobody takes the tasks, or all of them fail."""
    scheduler = Scheduled()
    long_ago = timezone.now() - timedelta(hours=5)
    PeriodicTask.objects.filter(name=NAME).update(date_changed=long_ago, last_run_at=long_ago)
    scheduler = Scheduled()
    assert NAME in scheduler.tick_all()
    scheduler.sync()
    assert PeriodicTask.objects.get(name=NAME).total_run_count == 1
    assert freshness.of(Kind.HOURLY, timezone.now()).is_late


def test_a_date_that_never_comes_keeps_no_other_task_waiting() -> None:
    never = CrontabSchedule.objects.create(day_of_month="30", month_of_year="2")
    a_task(crontab=never)
    other = PeriodicTask.objects.create(name="other", task="spark.sweep", interval=each_minute())
    PeriodicTask.objects.filter(pk=other.pk).update(last_run_at=timezone.now() - timedelta(hours=1))
    ran = Scheduled().tick_all()
    assert "other" in ran
    assert ScheduledTask(other).name == "other"


def test_the_console_refuses_a_date_that_never_comes() -> None:
    model_admin = CONSOLE._registry[CrontabSchedule]
    form = model_admin.get_form(RequestFactory().get("/"))
    daily = {"minute": "0", "hour": "4", "day_of_month": "*", "month_of_year": "*"}
    daily |= {"day_of_week": "*", "timezone": "UTC"}
    assert form(daily).is_valid()
    never = form(daily | {"day_of_month": "30", "month_of_year": "2"})
    assert "never occurs" in str(never.errors)
