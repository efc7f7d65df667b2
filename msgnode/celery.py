"""The Celery app: for `celery -A msgnode` and whoever sends a task; the node does not import it."""

from __future__ import annotations

import logging.config
import os
from typing import Any

from celery import Celery
from celery.schedules import crontab
from celery.signals import beat_init, setup_logging, worker_ready
from django.conf import settings

from msgnode.monitoring.background_programs import MARK_SECONDS, mark

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "msgnode.settings")

BROKER_SECONDS = 5.0
"""How long whoever sends a task waits for a broker that does not answer; longer than the consumer
waits for the next task.
"""


def of_redis(url: str) -> dict[str, Any]:
    """Celery's settings for a Redis as its broker."""
    from msgnode.redis.url import celery_broker  # the client of Redis is for who has one

    broker, options = celery_broker(url)
    limits = {"socket_connect_timeout": BROKER_SECONDS, "socket_timeout": BROKER_SECONDS}
    return {"broker_url": broker, "broker_transport_options": {**options, **limits}}


app = Celery("msgnode")
app.config_from_object("django.conf:settings", namespace="CELERY")
if settings.CELERY_BROKER_URL.startswith("redis"):
    app.conf.update(of_redis(settings.CELERY_BROKER_URL))
app.conf.beat_schedule = {
    name: {**each, "schedule": crontab(**when) if isinstance(when, dict) else when}
    for name, each in settings.BEAT_SCHEDULE.items()
    for when in (each["schedule"],)
}
app.autodiscover_tasks()


@setup_logging.connect
def log_like_the_node(**_: Any) -> None:
    """One JSON object a line here too, instead of Celery's own format."""
    logging.config.dictConfig(settings.LOGGING)


@beat_init.connect
def mark_beat(**_: Any) -> None:
    """Beat has read its schedule; scheduler.py renews the mark."""
    mark(settings.DATA_DIR, "beat")


@worker_ready.connect
def mark_worker(sender: Any, **_: Any) -> None:
    """The worker takes tasks, now or again after its broker was away."""
    mark(settings.DATA_DIR, "worker")
    sender.timer.call_repeatedly(MARK_SECONDS, mark, (settings.DATA_DIR, "worker"))
