"""The Django apps of Celery's schedule and results, whose models a process need not load.

They import Celery, a sixth of the memory of a worker that has no other use for it. So a process
that calls `defer` before `django.setup` starts without them, and `load` fetches them before the
first page. All others, first of all those that look at every model, have them from their start.
"""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig, apps

_is_deferred = False


class _CeleryConfig(AppConfig):
    default_auto_field = "django.db.models.AutoField"

    def import_models(self) -> None:
        """Import the models, unless the process does without them until `load`."""
        if _is_deferred:
            self.models: Any = apps.all_models[self.label]
        else:
            super().import_models()

    def ready(self) -> None:
        """Connect the signals of the models that there are."""
        if self.models_module is not None:
            self.connect()

    def connect(self) -> None:
        """Connect the signals of the models."""


class ScheduleConfig(_CeleryConfig):
    """What beat does when (django-celery-beat)."""

    name = "django_celery_beat"
    verbose_name = "Periodic Tasks"

    def connect(self) -> None:
        """Have beat told of changed rows."""
        from django_celery_beat.signals import signals_connect

        signals_connect()


class ResultsConfig(_CeleryConfig):
    """What became of tasks (django-celery-results)."""

    name = "django_celery_results"
    verbose_name = "Celery Results"


def defer() -> None:
    """Start this process without the models."""
    global _is_deferred
    _is_deferred = True


def load() -> None:
    """Load the models, if this process has started without them."""
    global _is_deferred
    if not _is_deferred:
        return
    _is_deferred = False
    # No other model refers to these. Without this, each would have all others forget what refers
    # to them, while further threads use that.
    apps.ready = False
    try:
        for name in (ScheduleConfig.name, ResultsConfig.name):
            config = apps.get_app_config(name)
            config.import_models()
            config.ready()
        apps.get_models.cache_clear()  # type: ignore[attr-defined]
    finally:
        apps.ready = True
