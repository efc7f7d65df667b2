"""What both modes share, and the embedded default: one machine, SQLite, no service needed.

Here is what Django itself asks for; the node's own settings have a file for each topic.
"""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured

from msgnode.resources import SHARED

from . import console
from .environment import *  # noqa: F403
from .environment import BASE_DIR, DATA_DIR, DOMAIN, PORT, database_of_environment, env
from .identity import *  # noqa: F403
from .jobs import *  # noqa: F403
from .messages import *  # noqa: F403
from .removed import still_set
from .services import *  # noqa: F403

# A line for each setting of an earlier version that is still set.
REMOVED_SETTINGS: list[str] = still_set(env.ENVIRON)

# --- Django ---------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "msgnode.apps.ThemeConfig",
    "unfold.contrib.filters",
    "msgnode.apps.ConsoleConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "channels",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "oauth2_provider",
    "axes",
    "csp",
    "msgnode.celery_apps.ScheduleConfig",
    "msgnode.celery_apps.ResultsConfig",
    "msgnode.apps.MessageNodeConfig",
    "policies.apps.PoliciesConfig",
    "registry.apps.RegistryConfig",
    "msgnode.qos.apps.QosConfig",
    "spark.apps.SparkConfig",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "msgnode.web.headers.HeadersMiddleware",
    "msgnode.web.unavailable.DatabaseLimitMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "msgnode.console.actor.ActorMiddleware",
    "axes.middleware.AxesMiddleware",  # last, as it asks for
]
ROOT_URLCONF = "msgnode.urls"
ASGI_APPLICATION = "msgnode.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [SHARED / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
# The default is not given as a URL: there the + ? # % of a path would mean something else.
DATABASES: dict[str, dict[str, Any]] = {
    "default": database_of_environment()
    if "DATABASE_URL" in env.ENVIRON
    else {"ENGINE": "django.db.backends.sqlite3", "NAME": str(DATA_DIR / "node.sqlite3")},
}
# Seconds that a page or a request may wait for one statement. The node's own work may take three
# times as long; commands have no limit.
DATABASE_TIMEOUT: float = env.float("DATABASE_TIMEOUT", default=10.0)
if DATABASE_TIMEOUT < 1:
    raise ImproperlyConfigured("DATABASE_TIMEOUT must be at least one second.")
# Requests over HTTP that a process serves at a time, each in a thread with a connection of its own.
REQUEST_THREADS: int = env.int("REQUEST_THREADS", default=8)
if REQUEST_THREADS < 1:
    raise ImproperlyConfigured("REQUEST_THREADS must be at least one.")
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # synchronous=FULL: an acknowledged allocation survives a power cut, not only a crash.
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": DATABASE_TIMEOUT,
        # A write-ahead log that has grown is cut back to journal_size_limit.
        "init_command": (
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA journal_size_limit=67108864;"
        ),
    }
else:
    DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
    DATABASES["default"].setdefault("CONN_MAX_AGE", 60)
    if "postgresql" in DATABASES["default"]["ENGINE"]:
        if DATABASES["default"]["ENGINE"] == "django.db.backends.postgresql":
            DATABASES["default"]["ENGINE"] = "msgnode.storage.postgresql"
        # A server that is cut off is given up within seconds; the URL may name other limits.
        DATABASES["default"]["OPTIONS"] = {
            "connect_timeout": 5,
            "tcp_user_timeout": 10_000,
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            **DATABASES["default"].get("OPTIONS", {}),
        }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_I18N = True
FORMAT_MODULE_PATH = ["msgnode.console.formats"]
USE_TZ = True
STATIC_URL = "/static/"
STATICFILES_DIRS = [("msgnode/runtime", BASE_DIR / "msgnode" / "runtime" / "js" / "src")]
STATIC_ROOT: str | None = None  # served from where the packages keep them, nothing to collect
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False
X_FRAME_OPTIONS = "DENY"
SECURE_CONTENT_TYPE_NOSNIFF = True
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
# Two nodes on one machine share the host name, and browsers keep cookies by host name only.
SESSION_COOKIE_NAME = f"node_{PORT}_session"
CSRF_COOKIE_NAME = f"node_{PORT}_csrf"

# --- Console --------------------------------------------------------------------------------------
UNFOLD = console.unfold(DOMAIN)
# Fields of one form. The page of a policy has seven for each rule; Django allows 1,000 in all.
DATA_UPLOAD_MAX_NUMBER_FIELDS = 10_000
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "newcomer"
LOGOUT_REDIRECT_URL = "newcomer"

# --- Logs: one JSON object a line -----------------------------------------------------------------
LOG_LEVEL: str = env("LOG_LEVEL", default="INFO")
if LOG_LEVEL not in ("DEBUG", "INFO", "WARNING", "ERROR"):
    raise ImproperlyConfigured(f"LOG_LEVEL is {LOG_LEVEL!r}; it is DEBUG, INFO, WARNING or ERROR.")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "msgnode.monitoring.logs.JsonFormatter"}},
    "filters": {
        "known": {"()": "msgnode.monitoring.logs.WithoutKnownTrace"},
        "unknown hosts": {"()": "msgnode.monitoring.logs.UnknownHosts"},
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {
        "django.request": {"filters": ["known"]},
        "django.security.DisallowedHost": {"filters": ["unknown hosts"]},
        "django.server": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
        "autobahn": {"level": "ERROR"},
        "axes": {"level": "WARNING"},
    },
}
