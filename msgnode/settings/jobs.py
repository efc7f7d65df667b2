"""The channel layer between workers, and Celery with what it does at which time."""

from __future__ import annotations

from typing import Any

from .environment import DATA_DIR, env

REDIS_URL: str = env("REDIS_URL", default="")
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "msgnode.redis.channel_layer.StreamChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL]},
    }
    if REDIS_URL
    else {"BACKEND": "channels.layers.InMemoryChannelLayer"},
}
CELERY_TIMEZONE = "UTC"
CELERY_RESULT_BACKEND = "django-db"
CELERY_RESULT_EXTENDED = True  # with the name of the task, its worker and its arguments
CELERY_RESULT_EXPIRES = 7 * 24 * 3600
CELERY_TASK_TIME_LIMIT = 3600
CELERY_WORKER_POOL = "threads"
# A report, a backup and the deletion of old rows may take an hour each; alarms are told meanwhile.
CELERY_WORKER_CONCURRENCY = 4
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BEAT_SCHEDULER = "msgnode.scheduler:Scheduler"
BEAT_SCHEDULE: dict[str, dict[str, Any]] = {  # `msgnode.celery` gives it to Celery
    "purge the decision log": {"task": "policies.purge", "schedule": 3600.0},
    "purge what is kept no longer": {"task": "msgnode.purge", "schedule": 3600.0},
    "tell of alarms": {
        "task": "msgnode.send_notices",
        "schedule": 10.0,
        "options": {"expires": 10.0},
    },
    "renew the provider's signing key": {
        "task": "msgnode.rotate_provider_key",
        "schedule": 3600.0,
    },
    # What waits for a worker longer than it takes to come round again is not worth doing twice.
    "end registrations whose time is over": {
        "task": "registry.expire",
        "schedule": 5.0,
        "options": {"expires": 10.0},
    },
    "age and purge ended registrations": {
        "task": "registry.purge",
        "schedule": 600.0,
        "options": {"expires": 600.0},
    },
    "hourly traffic report": {"task": "spark.hourly", "schedule": {"minute": "5"}},
    "daily traffic report": {"task": "spark.daily", "schedule": {"minute": "20", "hour": "0"}},
    "weekly traffic report": {
        "task": "spark.weekly",
        "schedule": {"minute": "40", "hour": "0", "day_of_week": "1"},
    },
    "monthly traffic report": {
        "task": "spark.monthly",
        "schedule": {"minute": "0", "hour": "1", "day_of_month": "1"},
    },
    "yearly traffic report": {
        "task": "spark.yearly",
        "schedule": {"minute": "0", "hour": "2", "day_of_month": "1", "month_of_year": "1"},
    },
    "take up waiting report runs": {"task": "spark.sweep", "schedule": 60.0},
    "delete old traffic rows and reports": {"task": "spark.retention", "schedule": 3600.0},
}
CELERY_BROKER_URL: str = env("CELERY_BROKER_URL", default=REDIS_URL)
if not CELERY_BROKER_URL:
    _broker = DATA_DIR / "celery"
    CELERY_BROKER_URL = "filesystem://localhost//"
    CELERY_BROKER_TRANSPORT = "msgnode.file_broker:Transport"
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "data_folder_in": str(_broker / "queue"),
        "data_folder_out": str(_broker / "queue"),
        "control_folder": str(_broker / "control"),
        "store_processed": False,
    }
