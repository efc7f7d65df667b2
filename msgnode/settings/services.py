"""What the node does besides messages: registries, policies, quality of service, reports."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured

from .environment import DATA_DIR, DOMAIN, IS_TLS, NODE_MODE, env

# --- The registries, and the REST interface they are read and written by --------------------------
REGISTRY: dict[str, Any] = {
    # open: anybody; read-open: anybody reads, accounts write; account: accounts only
    "ACCESS": env("REGISTRY_ACCESS", default="open" if NODE_MODE == "embedded" else "account"),
    "EXPIRES_MAX": env.int("REGISTRY_EXPIRES_MAX", default=3600),
    "UNAVAILABLE_CODE": env.int("REGISTRY_UNAVAILABLE_CODE", default=408),
    "CLOSE_GRACE": env.float("REGISTRY_CLOSE_GRACE", default=120.0),
    "PURGE_AFTER": env.int("REGISTRY_PURGE_AFTER", default=30 * 24 * 3600),
    # remote registries instead of the embedded ones, by their base URLs
    "DOMAIN_URL": env("DOMAIN_REGISTRY_URL", default=""),
    "GLOBAL_URL": env("GLOBAL_REGISTRY_URL", default=""),
}
# The history tells of entries that are no longer there, too.
REGISTRY["HISTORY_KEPT"] = 3 * REGISTRY["PURGE_AFTER"]

REST_FRAMEWORK = {
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "msgnode.identity.passwords.PasswordAuthentication",  # first: its challenge is sent
        "msgnode.identity.api_keys.ApiKeyAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAdminUser"],
    "DEFAULT_PARSER_CLASSES": [
        "registry.rest.parsers.SafeJSONParser",
        "rest_framework.parsers.FormParser",
        "rest_framework.parsers.MultiPartParser",
    ],
    "EXCEPTION_HANDLER": "registry.rest.problems.handle",
    "NUM_PROXIES": 0,  # msgnode.web.proxies has put the client in REMOTE_ADDR
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Messaging Node",
    "DESCRIPTION": (
        "The node over HTTP: who can be reached and where, peers and visitors, reports. "
        "[Messages](messages), which runtimes send over WebSockets, have a page of their own."
    ),
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "COMPONENT_SPLIT_REQUEST": True,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "msgnode.web.openapi.group_operations",
        "msgnode.devices.openapi.describe_devices",
        "msgnode.web.openapi.describe_refusals",
    ],
    "ENUM_NAME_OVERRIDES": {"ReportKindEnum": "spark.models.KindChoice"},
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
}

# --- Policies, and the mail of their obligations --------------------------------------------------
POLICY: dict[str, Any] = {
    # what becomes of a message that no policy decides, or whose policy cannot be evaluated
    "DELIVER_NOT_APPLICABLE": env.bool("POLICY_DELIVER_NOT_APPLICABLE", default=True),
    "DELIVER_INDETERMINATE": env.bool("POLICY_DELIVER_INDETERMINATE", default=False),
    "TIME_ZONE": env("POLICY_TIME_ZONE", default="UTC"),
    "USES_TLS": IS_TLS,
    # the decision log: one permit in so many (0: none), days kept
    "LOG_SAMPLE": env.int("POLICY_LOG_SAMPLE", default=1000),
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
EMAIL_TIMEOUT = 10.0  # for each step: a mail that is late is tried again
ALARM_WEBHOOK_HOSTS: list[str] = env.list("ALARM_WEBHOOK_HOSTS", default=[])
DEFAULT_FROM_EMAIL: str = env("DEFAULT_FROM_EMAIL", default=f"node@{DOMAIN}")

# --- Quality of service (docs/qos.md) -------------------------------------------------------------
QOS: dict[str, Any] = {
    # "" for none, embedded for the node's own, or the base URL of a broker of the field
    "BROKER": env("QOS_BROKER", default=""),
    # the Redis that the TURN servers share with the node
    "TURN_REDIS_URL": env("QOS_TURN_REDIS_URL", default=""),
    "REALM": env("QOS_REALM", default=DOMAIN),
    "MAX_PER_SUBJECT": env.int("QOS_MAX_PER_SUBJECT", default=20),
    "POLL_SECONDS": env.float("QOS_POLL_SECONDS", default=15.0),
    "KEPT_DAYS": env.int("QOS_KEPT_DAYS", default=90),
    # credentials are given over TLS, or on the machine of a newcomer
    "GIVES_CREDENTIALS": NODE_MODE == "embedded" or IS_TLS,
}
if QOS["BROKER"] not in ("", "embedded") and "://" not in QOS["BROKER"]:
    raise ImproperlyConfigured(
        f"QOS_BROKER is {QOS['BROKER']!r}; it is empty, embedded or the URL of a broker."
    )

# --- The traffic record, and the reports made of it -----------------------------------------------
RECORD: dict[str, Any] = {
    "ON": env.bool("RECORD", default=True),
    "URL": env("RECORD_URL", default=str(DATA_DIR / "record")),
    "FLUSH_SECONDS": env.float("RECORD_FLUSH_SECONDS", default=3.0),
    "BUFFER_ROWS": env.int("RECORD_BUFFER_ROWS", default=200_000),
    "MAX_BYTES": env.int("RECORD_MAX_BYTES", default=20 * 1024**3),
    "MIN_FREE_BYTES": env.int("RECORD_MIN_FREE_BYTES", default=512 * 1024**2),
    "PSEUDONYM_KEY": env("RECORD_PSEUDONYM_KEY", default=""),
    "RAW_DAYS": env.int("RECORD_RAW_DAYS", default=30),
}
REPORTS: dict[str, Any] = {
    "MASTER": env("SPARK_MASTER", default="local[*]"),
    "CONF": env.list("SPARK_CONF", default=[]),
    "PYTHON": env("PYSPARK_PYTHON", default=""),
    "SUBMIT": env("SPARK_SUBMIT", default=""),
    "KEEP_CLASSES": env.bool("SPARK_KEEP_CLASSES", default=True),
    "KEPT_DAYS": env.int("REPORT_KEPT_DAYS", default=1100),
}

# --- Traces of messages (docs/console.md) ---------------------------------------------------------
TRACING: dict[str, Any] = {
    # of the messages whose sender says no `traceparent`, 0 to 1; each worker traces 100 a second
    "RATIO": env.float("TRACE_SAMPLE_RATIO", default=0.0),
    # of an OpenTelemetry collector, OTLP over HTTP; its further variables are read by the SDK
    "ENDPOINT": env("OTEL_EXPORTER_OTLP_ENDPOINT", default=""),
}
