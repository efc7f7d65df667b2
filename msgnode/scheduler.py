"""Beat's scheduler: django-celery-beat's, corrected for clock changes and operators' settings.

- A task that ran while the clock was ahead is due at once; otherwise it would be due when the clock
  gets there. A clock that is set back while beat runs is noticed at the next tick.
- The schedule of an existing task belongs to the operator, and is kept.
- `date_changed` is when a task was last changed, not when it last ran, because the lateness of
  reports is judged by it.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django_celery_beat.models import PeriodicTask
from django_celery_beat.schedulers import DatabaseScheduler, ModelEntry

from msgnode.monitoring.background_programs import mark

log = logging.getLogger(__name__)

_SET_BACK = 5.0
"""Seconds by which the clock goes back at least if it was set back."""
_LONG_AGO = timedelta(days=366)
_RHYTHM = ("interval", "crontab", "solar", "clocked")


class ScheduledTask(ModelEntry):
    """A task of the schedule, from its row."""

    last_run_at: datetime

    def __init__(self, model: PeriodicTask, app: Any = None) -> None:
        super().__init__(model, app)
        now = self._default_now()
        if self.last_run_at > now:
            log.warning("a scheduled task ran in the future, so it is due", extra={"task": model})
            self.last_run_at = model.last_run_at = now - _LONG_AGO

    def save(self) -> None:
        """Write down that it ran."""
        PeriodicTask.objects.filter(pk=self.model.pk).update(
            last_run_at=self.model.last_run_at, total_run_count=self.model.total_run_count
        )

    @classmethod
    def from_entry(cls, name: str, app: Any = None, **entry: Any) -> ScheduledTask:
        """A task that the node itself schedules; one that is there keeps its rhythm."""
        fields = cls._unpack_fields(**entry)
        model, is_new = PeriodicTask.objects.get_or_create(name=name, defaults=fields)
        changed = {
            field: value
            for field, value in fields.items()
            if not is_new and field not in _RHYTHM and getattr(model, field) != value
        }
        for field, value in changed.items():
            setattr(model, field, value)
        if changed:
            model.save()
        return cls(model, app=app)


class Scheduler(DatabaseScheduler):
    """The tasks of the database, when they are due."""

    Entry = ScheduledTask
    _ticked_at = 0.0

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Run what is due; how many seconds until the next look."""
        now = time.time()
        if now < self._ticked_at - _SET_BACK:
            log.warning("the clock was set back: all scheduled tasks are looked at anew")
            self._last_full_sync = datetime.min  # noqa: DTZ901 (as the library has it)
        self._ticked_at = now
        mark(settings.DATA_DIR, "beat")
        seconds: float = super().tick(*args, **kwargs)
        return seconds
