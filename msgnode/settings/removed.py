"""Settings of earlier versions, and what became of them: a start names those that are still set.

A constant is meant where a number is given; it stands with its reason in the code that uses it.
"""

from __future__ import annotations

from collections.abc import Mapping

_IN_EMBEDDED_MODE = "it is true with NODE_MODE=embedded only"
_ONE_RATE = "CLIENT_REQUESTS_PER_MINUTE is for all of them"

REMOVED = {
    # identity
    "ACCESS_TOKEN_SECONDS": "ID_TOKEN_SECONDS is for access tokens, too",
    "API_KEY_DAYS": "the form of a key proposes 365 days",
    "CLIENT_FAILURES_PER_MINUTE": "it is always 20",
    "CONSOLE_SESSION_ENDS_WITH_BROWSER": "it is always true",
    "CONTACT_CARDS_PER_MINUTE": "it is always 60",
    "IDENTITY_BINDINGS_PER_RUNTIME": "it is always 1000",
    "IDENTITY_BINDS_TOKENS": "it is always true",
    "IDENTITY_CACHE": "it is always 20000",
    "IDENTITY_CHECKS_PER_SECOND": "it is always 50",
    "IDENTITY_INTROSPECTIONS_PER_SECOND": "it is always 100",
    "IDENTITY_LEEWAY": "it is always 60",
    "IDENTITY_LOOPBACK_HTTP": _IN_EMBEDDED_MODE,
    "IDENTITY_STALE_KEYS": "it is always 86400",
    "IDENTITY_TIMEOUT": "it is always 3",
    "LOGIN_COOL_OFF_MINUTES": "it is always 15",
    "PROVIDER_KEY_DAYS": "it is always 90",
    "PROVIDER_KEY_LEAD_SECONDS": "it is always 900",
    # messages, sessions, addresses
    "ALLOCATION_SCHEMES": "schemes of your own have an address pool",
    "ANSWER_TIMEOUT": "it is always 14",
    "DRAIN_STAGGER": "it is two fifths of DRAIN_SECONDS",
    "LIVENESS_TIMEOUT": "it is always 2",
    "MAX_ALLOCATION_BLOCK": "MAX_ADDRESSES_PER_REQUEST is for what is allocated, too",
    "MAX_CLOSED_SESSIONS_PER_SOURCE": "it is a tenth of MAX_CLOSED_SESSIONS",
    "MAX_LEARNED_PER_SESSION": "it is always 1000",
    "MAX_PENDING_ANSWERS": "it is always 512",
    "MAX_PENDING_ANSWERS_PER_SOURCE": "it is always 4096",
    "MAX_PENDING_ANSWERS_TOTAL": "it is always 16384",
    "MAX_SESSIONS": "it is twice MAX_CONNECTIONS",
    "RESPONSE_SECONDS": "it is always 600",
    # devices
    "DEVICE_MQTT": "devices behind a broker are served if MQTT_URL is set",
    "DEVICE_PUSH": "push services wake devices if PUSH_CONTACT is set",
    "MQTT_KEY_FILE": "the file MQTT_CERT_FILE contains the key, too",
    # other domains
    "FEDERATION_BYTES_PER_SECOND": "it is always 20000000",
    "FEDERATION_IDLE_SECONDS": "it is always 600",
    "FEDERATION_LINGER_SECONDS": "it is always 10",
    "FEDERATION_MESSAGES_PER_SECOND": "each peer has its own, 2000 until an operator says more",
    "FEDERATION_QUEUE_BYTES": "it is always 16777216",
    "FEDERATION_QUEUE_MESSAGES": "it is always 10000",
    "FEDERATION_STORED_BYTES": "it is always 4194304",
    "SANDBOX_DATA_MIB": "it is always 640",
    "SANDBOX_HEAP_MIB": "it is always 64",
    "SANDBOX_MEMORY_MIB": "it is always 256",
    # TLS and proxies
    "CSRF_TRUSTED_ORIGINS": "the origin of PUBLIC_URL is trusted",
    "SECURE_HSTS_INCLUDE_SUBDOMAINS": "HSTS is the whole header",
    "SECURE_HSTS_PRELOAD": "HSTS is the whole header",
    "SECURE_HSTS_SECONDS": "HSTS is the whole header",
    "SECURE_SSL_REDIRECT": "PUBLIC_URL says by its scheme whether the node is reached over TLS",
    "USES_TLS": "PUBLIC_URL says by its scheme whether the node is reached over TLS",
    # policies and mail
    "EMAIL_TIMEOUT": "it is always 10",
    "POLICY_LOG_ROOM": "it is always 10000",
    # registries
    "API_KEY_PER_MINUTE": _ONE_RATE,
    "GLOBAL_REGISTRY_WRITES_PER_MINUTE": "it is always 600",
    "REGISTRY_DEAD_AFTER": "it is always 604800",
    "REGISTRY_HISTORY_KEPT": "it is three times REGISTRY_PURGE_AFTER",
    "REGISTRY_MAX_BODY_BYTES": "it is always 262144",
    "REGISTRY_MAX_MATCHES": "it is always 1000",
    "REGISTRY_READS_PER_MINUTE": _ONE_RATE,
    "REGISTRY_REMOTE_CONNECTIONS": "it is always 32",
    "REGISTRY_REMOTE_RETRIES": "it is always 2",
    "REGISTRY_REMOTE_TIMEOUT": "it is always 3",
    "REGISTRY_WRITES_PER_MINUTE": _ONE_RATE,
    # quality of service
    "QOS_CREDENTIAL_SECONDS": "it is always 3600",
    "QOS_MAX_PER_SESSION": "it is always 4",
    "QOS_MAX_SECONDS": "it is always 86400",
    "QOS_SECONDS": "it is always 3600",
    "QOS_UNUSED_SECONDS": "it is always 60",
    # record and reports
    "RECORD_ROLL_UP_DAYS": "REPORT_KEPT_DAYS is for roll-ups, too",
    "REPORT_HOURLY_KEPT_DAYS": "it is always 35",
    "REPORT_TIME_LIMIT": "it is always 3300",
    "SPARK_CORES_MAX": "set spark.cores.max in SPARK_CONF",
    "SPARK_EXECUTOR_CORES": "set spark.executor.cores in SPARK_CONF",
    "SPARK_EXECUTOR_MEMORY": "set spark.executor.memory in SPARK_CONF",
    "SPARK_EXECUTOR_WAIT_SECONDS": "it is always 60",
    "SPARK_MEMORY": "set spark.driver.memory in SPARK_CONF",
    "SPARK_NICENESS": "it is always 10",
}


def still_set(environment: Mapping[str, str]) -> list[str]:
    """Name each that the environment has.

    Args:
        environment: the variables, with those of the file `.env`.

    Returns:
        A sentence for each.
    """
    return [
        f"{name} is set, but is no setting any more: {became}."
        for name, became in REMOVED.items()
        if name in environment
    ]
