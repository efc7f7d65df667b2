"""What both modes share, and the embedded default: one machine, SQLite, no service needed."""

from __future__ import annotations

import secrets
from datetime import timedelta
from pathlib import Path
from typing import Any

import environ
from celery.schedules import crontab
from django.core.exceptions import ImproperlyConfigured

from . import access, console

BASE_DIR = Path(__file__).resolve().parent.parent.parent


class _Environment(environ.Env):
    """Names the variable whose value cannot be read."""

    def get_value(self, var: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().get_value(var, *args, **kwargs)
        except ValueError as fault:
            raise ImproperlyConfigured(f"{var} cannot be read: {fault}") from None


env = _Environment()
if (BASE_DIR / ".env").is_file():
    env.read_env(BASE_DIR / ".env")

NODE_MODE: str = env("NODE_MODE", default="embedded")
if NODE_MODE not in ("embedded", "production"):
    raise ImproperlyConfigured(f"NODE_MODE is {NODE_MODE!r}; it is embedded or production.")

# --- Where the node is and what it may write ------------------------------------------------------
HOST: str = env("HOST", default="127.0.0.1")
PORT: int = env.int("PORT", default=8000)
ASGI_SERVER: str = env("ASGI_SERVER", default="daphne")
DOMAIN: str = env("DOMAIN", default="localhost").lower()
# Where browsers find the node; the embedded OpenID provider's issuer is PUBLIC_URL + "/o".
PUBLIC_URL: str = env(
    "PUBLIC_URL",
    default=f"http://localhost:{PORT}" if NODE_MODE == "embedded" else f"https://{DOMAIN}",
).rstrip("/")
WORKERS: int = env.int("WORKERS", default=1)
DATA_DIR = Path(env("DATA_DIR", default=str(BASE_DIR / "var"))).resolve()


def _secret_key() -> str:
    """The key of an embedded node: made once, kept readable by its owner only."""
    path = DATA_DIR / "secret_key"
    if not path.exists():
        DATA_DIR.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{secrets.token_hex(4)}")
        try:
            fresh.touch(mode=0o600)
            fresh.write_text(secrets.token_urlsafe(48))
            path.hardlink_to(fresh)  # fails if another process was first: then its key counts
        except FileExistsError:
            pass
        except OSError as fault:
            raise ImproperlyConfigured(f"DATA_DIR {DATA_DIR}: {fault}") from None
        finally:
            fresh.unlink(missing_ok=True)
    return path.read_text()


DEBUG = False
SECRET_KEY: str = env("SECRET_KEY", default="") or (
    _secret_key() if NODE_MODE == "embedded" else ""
)
ALLOWED_HOSTS: list[str] = env.list(
    "ALLOWED_HOSTS",
    default=["*"]
    if NODE_MODE == "embedded" and HOST in ("127.0.0.1", "localhost", "::1")
    else [DOMAIN, HOST],
)
CSRF_TRUSTED_ORIGINS: list[str] = env.list("CSRF_TRUSTED_ORIGINS", default=[])
# Proxies in front that are believed when they name the client and the scheme (X-Forwarded-*).
PROXIES: int = env.int("PROXIES", default=0 if NODE_MODE == "embedded" else 1)

# --- Identities: the embedded OpenID provider -----------------------------------------------------
PROVIDER: dict[str, Any] = {
    "ISSUER": f"{PUBLIC_URL}/{access.PROVIDER_PATH}",
    "ACCESS_TOKEN_SECONDS": env.int("ACCESS_TOKEN_SECONDS", default=3600),
    "ID_TOKEN_SECONDS": env.int("ID_TOKEN_SECONDS", default=3600),
    "REFRESH_TOKEN_SECONDS": env.int("REFRESH_TOKEN_SECONDS", default=14 * 24 * 3600),
    # failures of one client from one address, until it is answered 429
    "FAILURES_PER_MINUTE": env.int("CLIENT_FAILURES_PER_MINUTE", default=20),
    # a new key is published so long before it signs, and made again after so many days
    "KEY_LEAD_SECONDS": env.int("PROVIDER_KEY_LEAD_SECONDS", default=900),
    "KEY_DAYS": env.float("PROVIDER_KEY_DAYS", default=90.0),
}
# Encrypts the provider's private keys in the database. Without one SECRET_KEY does.
KEY_ENCRYPTION_KEY: str = env("KEY_ENCRYPTION_KEY", default="")
SECRET_KEY_FALLBACKS: list[str] = env.list("SECRET_KEY_FALLBACKS", default=[])
OAUTH2_PROVIDER = access.provider(
    PROVIDER["ISSUER"], PROVIDER, is_production=NODE_MODE == "production"
)

# --- Log-in, sessions of browsers, API keys -------------------------------------------------------
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",  # first: it refuses who has guessed too often
    "django.contrib.auth.backends.ModelBackend",
]
# Wrong passwords for one name from one address, and how long the name is then shut to the address:
# its owner elsewhere is not.
AXES_FAILURE_LIMIT: int = env.int("LOGIN_FAILURES", default=8)
AXES_COOLOFF_TIME = timedelta(minutes=env.float("LOGIN_COOL_OFF_MINUTES", default=15.0))
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_CLIENT_IP_CALLABLE = "msgnode.web.proxies.address_of"
AXES_LOCKOUT_CALLABLE = "msgnode.identity.provider.login.locked_out"
AXES_DISABLE_ACCESS_LOG = True  # the audit log has who came in
AXES_ENABLE_ADMIN = False  # msgnode.console.failed_logins shows failures in the console's look
AXES_VERBOSE = False
AXES_SENSITIVE_PARAMETERS = [
    *("username", "ip_address", "next", "token", "access_token", "id_token", "id_token_hint"),
    *("refresh_token", "code", "client_secret", "assertion", "runtimeToken", "api_key"),
]
LOGINS_PER_MINUTE: int = env.int("LOGINS_PER_MINUTE", default=60)
SESSION_COOKIE_AGE: int = env.int("CONSOLE_SESSION_SECONDS", default=8 * 3600)
SESSION_EXPIRE_AT_BROWSER_CLOSE: bool = env.bool("CONSOLE_SESSION_ENDS_WITH_BROWSER", default=True)
AUDIT_DAYS: float = env.float("AUDIT_DAYS", default=730.0)
API_KEYS: dict[str, int] = {
    "DAYS": env.int("API_KEY_DAYS", default=365),
    "PER_MINUTE": env.int("API_KEY_PER_MINUTE", default=60_000),
}
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"  # a key is shown once
CONTENT_SECURITY_POLICY = access.content_security_policy()

# --- Limits of the node (decisions in docs/architecture.md) ---------------------------------------
NODE: dict[str, float] = {
    # sockets
    "MAX_FRAME_BYTES": env.int("MAX_FRAME_BYTES", default=1024 * 1024),
    "PING_INTERVAL": env.float("PING_INTERVAL", default=30.0),
    "PING_TIMEOUT": env.float("PING_TIMEOUT", default=30.0),
    "LIVENESS_TIMEOUT": env.float("LIVENESS_TIMEOUT", default=2.0),
    "HANDSHAKE_TIMEOUT": env.float("HANDSHAKE_TIMEOUT", default=60.0),
    "MAX_CONNECTIONS": env.int("MAX_CONNECTIONS", default=100_000),
    "MAX_CONNECTIONS_PER_SOURCE": env.int("MAX_CONNECTIONS_PER_SOURCE", default=12_000),
    # sessions
    "MAX_SESSIONS": env.int("MAX_SESSIONS", default=200_000),
    "MAX_SESSIONS_PER_RUNTIME": env.int("MAX_SESSIONS_PER_RUNTIME", default=16),
    "GRACE_PERIOD": env.float("GRACE_PERIOD", default=120.0),
    "OUTBOX_BYTES": env.int("OUTBOX_BYTES", default=4 * 1024 * 1024),
    # bytes that wait for the sessions of one source address or one subject, and for all
    "MAX_QUEUE_BYTES_PER_SOURCE": env.int("MAX_QUEUE_BYTES_PER_SOURCE", default=64 * 1024 * 1024),
    "MAX_QUEUE_BYTES": env.int("MAX_QUEUE_BYTES", default=512 * 1024 * 1024),
    "MAX_MESSAGES_PER_SECOND": env.int("MAX_MESSAGES_PER_SECOND", default=10_000),
    "MAX_BYTES_PER_SECOND": env.int("MAX_BYTES_PER_SECOND", default=50_000_000),
    "MAX_PENDING_ANSWERS": env.int("MAX_PENDING_ANSWERS", default=512),
    "MAX_PENDING_ANSWERS_PER_SOURCE": env.int("MAX_PENDING_ANSWERS_PER_SOURCE", default=4_096),
    "MAX_PENDING_ANSWERS_TOTAL": env.int("MAX_PENDING_ANSWERS_TOTAL", default=16_384),
    "ANSWER_TIMEOUT": env.float("ANSWER_TIMEOUT", default=14.0),
    # workers
    "WORKER_TIMEOUT": env.float("WORKER_TIMEOUT", default=5.0),
    "LINK_BYTES": env.int("LINK_BYTES", default=8 * 1024 * 1024),
    # addresses and subscriptions
    "MAX_ALLOCATION_BLOCK": env.int("MAX_ALLOCATION_BLOCK", default=1_000),
    "MAX_ALLOCATIONS_PER_SESSION": env.int("MAX_ALLOCATIONS_PER_SESSION", default=100_000),
    "MAX_SUBSCRIPTIONS_PER_SESSION": env.int("MAX_SUBSCRIPTIONS_PER_SESSION", default=20_000),
    # of all sessions of one source address (IPv6: its /64) or one subject, in each worker
    "MAX_ADDRESSES_PER_SOURCE": env.int("MAX_ADDRESSES_PER_SOURCE", default=500_000),
    "MAX_LEARNED_PER_SESSION": env.int("MAX_LEARNED_PER_SESSION", default=1_000),
    "MAX_OPEN_REQUESTS": env.int("MAX_OPEN_REQUESTS", default=10_000),
    "RESPONSE_SECONDS": env.float("RESPONSE_SECONDS", default=600.0),
    # keeping
    "CLOSED_SESSION_DAYS": env.int("CLOSED_SESSION_DAYS", default=7),
    "MAX_CLOSED_SESSIONS": env.int("MAX_CLOSED_SESSIONS", default=100_000),
    "MAX_CLOSED_SESSIONS_PER_SOURCE": env.int("MAX_CLOSED_SESSIONS_PER_SOURCE", default=10_000),
    # the message each worker sends itself: seconds between two, and until it is not ready
    "PROBE_INTERVAL": env.float("PROBE_INTERVAL", default=3.0),
    "PROBE_TIMEOUT": env.float("PROBE_TIMEOUT", default=5.0),
    "DRAIN_SECONDS": env.float("DRAIN_SECONDS", default=5.0),
    "DRAIN_STAGGER": env.float("DRAIN_STAGGER", default=2.0),
}
ALLOCATION_SCHEMES: list[str] = env.list(
    "ALLOCATION_SCHEMES",
    default=["hyperty", "comm", "connection", "context", "resource", "fs"],
)
RESUME: str = env("RESUME", default="when-idle" if NODE_MODE == "embedded" else "with-proof")
SHARE_RUNTIME_URL: bool = env.bool("SHARE_RUNTIME_URL", default=NODE_MODE == "embedded")
STRICT_RESPONSES: bool = env.bool("STRICT_RESPONSES", default=True)
STORE_FOR_DETACHED: bool = env.bool("STORE_FOR_DETACHED", default=True)

# --- Identity -------------------------------------------------------------------------------------
# anonymous, identified or strict; and the same for single domains of origin
ADMISSION: str = env(
    "ADMISSION", default="anonymous" if NODE_MODE == "embedded" else "identified"
).lower()
ADMISSION_DOMAINS: dict[str, str] = env.dict("ADMISSION_DOMAINS", default={})
# Origins of the pages that may connect; "*" is any.
WS_ORIGINS: list[str] = env.list(
    "WS_ORIGINS", default=["*"] if NODE_MODE == "embedded" else [PUBLIC_URL]
)
IDENTITY: dict[str, Any] = {
    # whether an identity of an unknown issuer passes as not asserted (in the anonymous mode only)
    "PASSES_UNKNOWN": env.bool("IDENTITY_PASSES_UNKNOWN", default=NODE_MODE == "embedded"),
    "LEEWAY": env.float("IDENTITY_LEEWAY", default=60.0),
    "BINDS_TOKENS": env.bool("IDENTITY_BINDS_TOKENS", default=True),
    # seconds a session may go without an identity where the mode asks for one; 0: for ever
    "IDENTIFY_TIMEOUT": env.float("IDENTIFY_TIMEOUT", default=300.0),
    # tokens that may be bound to one runtime at a time
    "BINDINGS_PER_RUNTIME": env.int("IDENTITY_BINDINGS_PER_RUNTIME", default=1_000),
    # what is kept of tokens: entries in memory
    "CACHE": env.int("IDENTITY_CACHE", default=20_000),
    "CHECKS_PER_SECOND": env.float("IDENTITY_CHECKS_PER_SECOND", default=50.0),
    "INTROSPECTIONS_PER_SECOND": env.float("IDENTITY_INTROSPECTIONS_PER_SECOND", default=100.0),
    # asking issuers: seconds for an answer, hosts beside the issuers' own, how long keys outlive
    # an outage
    "TIMEOUT": env.float("IDENTITY_TIMEOUT", default=3.0),
    "HOSTS": env.list("IDENTITY_HOSTS", default=[]),
    "LOOPBACK_HTTP": env.bool("IDENTITY_LOOPBACK_HTTP", default=NODE_MODE == "embedded"),
    "STALE_KEYS": env.float("IDENTITY_STALE_KEYS", default=24 * 3600.0),
    "OWNER_DAYS": env.int("IDENTITY_OWNER_DAYS", default=30),
}

# --- Policies -------------------------------------------------------------------------------------
POLICY: dict[str, Any] = {
    # what becomes of a message that no policy decides, or whose policy cannot be evaluated
    "DELIVER_NOT_APPLICABLE": env.bool("POLICY_DELIVER_NOT_APPLICABLE", default=True),
    "DELIVER_INDETERMINATE": env.bool("POLICY_DELIVER_INDETERMINATE", default=False),
    "TIME_ZONE": env("POLICY_TIME_ZONE", default="UTC"),
    "USES_TLS": env.bool("USES_TLS", default=False),
    # the decision log: one permit in so many (0: none), entries in memory, days kept
    "LOG_SAMPLE": env.int("POLICY_LOG_SAMPLE", default=1000),
    "LOG_ROOM": env.int("POLICY_LOG_ROOM", default=10_000),
    "LOG_DAYS": env.float("POLICY_LOG_DAYS", default=30.0),
    "LOG_MASKS_BODIES": env.bool("POLICY_LOG_MASKS_BODIES", default=True),
}
EMAIL_CONFIG = env.email_url("EMAIL_URL", default="consolemail://")
EMAIL_BACKEND: str = EMAIL_CONFIG["EMAIL_BACKEND"]
EMAIL_HOST: str = EMAIL_CONFIG.get("EMAIL_HOST") or ""
EMAIL_PORT = EMAIL_CONFIG.get("EMAIL_PORT") or 25
EMAIL_HOST_USER: str = EMAIL_CONFIG.get("EMAIL_HOST_USER") or ""
EMAIL_HOST_PASSWORD: str = EMAIL_CONFIG.get("EMAIL_HOST_PASSWORD") or ""
EMAIL_USE_TLS: bool = EMAIL_CONFIG.get("EMAIL_USE_TLS", False)
EMAIL_USE_SSL: bool = EMAIL_CONFIG.get("EMAIL_USE_SSL", False)
EMAIL_FILE_PATH: str = EMAIL_CONFIG.get("EMAIL_FILE_PATH") or ""
EMAIL_TIMEOUT: float = env.float("EMAIL_TIMEOUT", default=10.0)
DEFAULT_FROM_EMAIL: str = env("DEFAULT_FROM_EMAIL", default=f"node@{DOMAIN}")
# --- Registry -------------------------------------------------------------------------------------
REGISTRY = {
    # open: anybody; read-open: anybody reads, accounts write; account: accounts only
    "ACCESS": env("REGISTRY_ACCESS", default="open" if NODE_MODE == "embedded" else "account"),
    "EXPIRES_MAX": env.int("REGISTRY_EXPIRES_MAX", default=3600),
    "UNAVAILABLE_CODE": env.int("REGISTRY_UNAVAILABLE_CODE", default=408),
    "CLOSE_GRACE": env.float("REGISTRY_CLOSE_GRACE", default=120.0),
    "DEAD_AFTER": env.int("REGISTRY_DEAD_AFTER", default=7 * 24 * 3600),
    "PURGE_AFTER": env.int("REGISTRY_PURGE_AFTER", default=30 * 24 * 3600),
    "HISTORY_KEPT": env.int("REGISTRY_HISTORY_KEPT", default=90 * 24 * 3600),
    "MAX_MATCHES": env.int("REGISTRY_MAX_MATCHES", default=1000),
    "MAX_BODY_BYTES": env.int("REGISTRY_MAX_BODY_BYTES", default=256 * 1024),
    "READS_PER_MINUTE": env.int("REGISTRY_READS_PER_MINUTE", default=60_000),
    "WRITES_PER_MINUTE": env.int("REGISTRY_WRITES_PER_MINUTE", default=60_000),
    # remote registries instead of the embedded ones, by their base URLs
    "DOMAIN_URL": env("DOMAIN_REGISTRY_URL", default=""),
    "GLOBAL_URL": env("GLOBAL_REGISTRY_URL", default=""),
    "REMOTE_TIMEOUT": env.float("REGISTRY_REMOTE_TIMEOUT", default=3.0),
    "REMOTE_RETRIES": env.int("REGISTRY_REMOTE_RETRIES", default=2),
    "REMOTE_CONNECTIONS": env.int("REGISTRY_REMOTE_CONNECTIONS", default=32),
}

# --- Traffic record and reports -------------------------------------------------------------------
RECORD: dict[str, Any] = {
    "ON": env.bool("RECORD", default=True),
    "URL": env("RECORD_URL", default=str(DATA_DIR / "record")),
    "FLUSH_SECONDS": env.float("RECORD_FLUSH_SECONDS", default=3.0),
    "BUFFER_ROWS": env.int("RECORD_BUFFER_ROWS", default=200_000),
    "MAX_BYTES": env.int("RECORD_MAX_BYTES", default=20 * 1024**3),
    "MIN_FREE_BYTES": env.int("RECORD_MIN_FREE_BYTES", default=512 * 1024**2),
    "PSEUDONYM_KEY": env("RECORD_PSEUDONYM_KEY", default=""),
    "RAW_DAYS": env.int("RECORD_RAW_DAYS", default=30),
    "ROLL_UP_DAYS": env.int("RECORD_ROLL_UP_DAYS", default=800),
}
REPORTS: dict[str, Any] = {
    "MASTER": env("SPARK_MASTER", default="local[*]"),
    "MEMORY": env("SPARK_MEMORY", default="2g"),
    "CONF": env.list("SPARK_CONF", default=[]),
    "PYTHON": env("PYSPARK_PYTHON", default=""),
    "EXECUTOR_MEMORY": env("SPARK_EXECUTOR_MEMORY", default=""),
    "EXECUTOR_CORES": env("SPARK_EXECUTOR_CORES", default=""),
    "CORES": env("SPARK_CORES_MAX", default=""),
    "EXECUTOR_WAIT": env.float("SPARK_EXECUTOR_WAIT_SECONDS", default=60.0),
    "SUBMIT": env("SPARK_SUBMIT", default=""),
    "KEEP_CLASSES": env.bool("SPARK_KEEP_CLASSES", default=True),
    "TIME_LIMIT": env.float("REPORT_TIME_LIMIT", default=3300.0),
    "HOURLY_KEPT_DAYS": env.int("REPORT_HOURLY_KEPT_DAYS", default=35),
    "KEPT_DAYS": env.int("REPORT_KEPT_DAYS", default=1100),
}

# --- Django ---------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "unfold",
    "unfold.contrib.filters",
    "django.contrib.admin",
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
    "django_celery_beat",
    "django_celery_results",
    "msgnode.apps.MessageNodeConfig",
    "policies.apps.PoliciesConfig",
    "registry.apps.RegistryConfig",
    "spark.apps.SparkConfig",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "msgnode.web.headers.HeadersMiddleware",
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
        "DIRS": [BASE_DIR / "templates"],
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
DATABASES = {
    "default": env.db_url("DATABASE_URL", default=f"sqlite:///{DATA_DIR / 'node.sqlite3'}"),
}
if not DATABASES["default"].get("ENGINE"):
    raise ImproperlyConfigured("DATABASE_URL is not the URL of a database that Django knows.")
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # synchronous=FULL: an acknowledged allocation survives a power cut, not only a crash.
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 10,
        # A write-ahead log that has grown is cut back to journal_size_limit.
        "init_command": (
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA journal_size_limit=67108864;"
        ),
    }
else:
    DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
    DATABASES["default"].setdefault("CONN_MAX_AGE", 60)
    if "postgresql" in DATABASES["default"]["ENGINE"]:
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

# --- Channel layer, Celery ------------------------------------------------------------------------
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
CELERY_WORKER_CONCURRENCY = 2
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"
CELERY_BEAT_SCHEDULE = {
    "purge the decision log": {"task": "policies.purge", "schedule": 3600.0},
    "purge what is kept no longer": {"task": "msgnode.purge", "schedule": 3600.0},
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
    "hourly traffic report": {"task": "spark.hourly", "schedule": crontab(minute="5")},
    "daily traffic report": {"task": "spark.daily", "schedule": crontab("20", "0")},
    "weekly traffic report": {"task": "spark.weekly", "schedule": crontab("40", "0", "1")},
    "monthly traffic report": {"task": "spark.monthly", "schedule": crontab("0", "1", "*", "1")},
    "take up waiting report runs": {"task": "spark.sweep", "schedule": 60.0},
    "delete old traffic rows and reports": {"task": "spark.retention", "schedule": 3600.0},
}
if REDIS_URL:
    CELERY_BROKER_URL = REDIS_URL
else:
    _broker = DATA_DIR / "celery"
    CELERY_BROKER_URL = "filesystem://localhost//"
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "data_folder_in": str(_broker / "queue"),
        "data_folder_out": str(_broker / "queue"),
        "control_folder": str(_broker / "control"),
        "store_processed": False,
    }

# --- REST -----------------------------------------------------------------------------------------
REST_FRAMEWORK = {
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "rest_framework.authentication.BasicAuthentication",  # first: its challenge is sent
        "msgnode.identity.api_keys.ApiKeyAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAdminUser"],
    "NUM_PROXIES": 0,  # msgnode.web.proxies has put the client in REMOTE_ADDR
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Messaging Node",
    "DESCRIPTION": "The registry of the domain: who can be reached, and where.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "COMPONENT_SPLIT_REQUEST": True,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "msgnode.web.openapi.describe_refusals",
    ],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
}

# --- Console --------------------------------------------------------------------------------------
UNFOLD = console.unfold(DOMAIN)
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "newcomer"
LOGOUT_REDIRECT_URL = "newcomer"

# --- Logs: one JSON object a line -----------------------------------------------------------------
LOG_LEVEL: str = env("LOG_LEVEL", default="INFO")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "msgnode.monitoring.logs.JsonFormatter"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {
        "django.server": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
        "autobahn": {"level": "ERROR"},
        "axes": {"level": "WARNING"},
        "httpx": {"level": "WARNING"},  # one line for each request, with user ids in it
    },
}
