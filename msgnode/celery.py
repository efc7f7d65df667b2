"""The Celery app: for `celery -A msgnode` and whoever sends a task; the node does not import it."""

from __future__ import annotations

import logging.config
import os
from typing import Any

from celery import Celery
from celery.schedules import crontab
from celery.signals import beat_init, setup_logging, worker_ready
from django.conf import settings
from kombu.exceptions import OperationalError
from kombu.messaging import Producer

from msgnode.monitoring.background_programs import MARK_SECONDS, mark

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "msgnode.settings")

BROKER_SECONDS = 5.0
"""How long whoever sends a task waits for a broker that does not answer; longer than the consumer
waits for the next task.
"""
MOST_WAITING = 1_000
"""Tasks that wait at most: without a worker, what beat sends would fill a disk, or the Redis of the
node's workers.
"""


class BoundedCelery(Celery):
    """Celery that refuses a task while too many wait."""

    def send_task(self, name: str, *args: Any, producer: Any = None, **options: Any) -> Any:
        """Send a task as Celery does. Raises kombu's OperationalError."""
        with self.producer_or_acquire(producer) as sender:
            if _waiting(sender, self.conf.task_default_queue) >= MOST_WAITING:
                raise OperationalError(f"{MOST_WAITING} tasks wait already for Celery's worker")
            return super().send_task(name, *args, producer=sender, **options)


def _waiting(sender: Producer, queue: str) -> int:
    """How many tasks wait; 0 if that cannot be known, since sending one says why."""
    faults = (*sender.connection.connection_errors, *sender.connection.channel_errors)
    try:
        waiting: int = sender.channel.queue_declare(queue, passive=True).message_count
    except faults:
        return 0
    return waiting


def of_redis(url: str) -> dict[str, Any]:
    """Celery's settings for a Redis as its broker."""
    from msgnode.redis.url import celery_broker  # the client of Redis is for who has one

    broker, options = celery_broker(url)
    limits = {"socket_connect_timeout": BROKER_SECONDS, "socket_timeout": BROKER_SECONDS}
    return {"broker_url": broker, "broker_transport_options": {**options, **limits}}


app = BoundedCelery("msgnode")
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
