"""The registry, and the REST interface it is read and written by."""

from __future__ import annotations

from .environment import NODE_MODE, env

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
    "GLOBAL_WRITES_PER_MINUTE": env.int("GLOBAL_REGISTRY_WRITES_PER_MINUTE", default=600),
    # remote registries instead of the embedded ones, by their base URLs
    "DOMAIN_URL": env("DOMAIN_REGISTRY_URL", default=""),
    "GLOBAL_URL": env("GLOBAL_REGISTRY_URL", default=""),
    "REMOTE_TIMEOUT": env.float("REGISTRY_REMOTE_TIMEOUT", default=3.0),
    "REMOTE_RETRIES": env.int("REGISTRY_REMOTE_RETRIES", default=2),
    "REMOTE_CONNECTIONS": env.int("REGISTRY_REMOTE_CONNECTIONS", default=32),
}

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
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
}
