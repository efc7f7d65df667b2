"""Quality of service: which broker the node has, and the limits of reservations (docs/qos.md)."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured

from .environment import DOMAIN, NODE_MODE, env
from .policy import POLICY

QOS: dict[str, Any] = {
    # "" for none, embedded for the node's own, or the base URL of a broker of the field
    "BROKER": env("QOS_BROKER", default=""),
    # the Redis that the TURN servers share with the node
    "TURN_REDIS_URL": env("QOS_TURN_REDIS_URL", default=""),
    "REALM": env("QOS_REALM", default=DOMAIN),
    "SECONDS": env.int("QOS_SECONDS", default=3600),
    "MAX_SECONDS": env.int("QOS_MAX_SECONDS", default=24 * 3600),
    "CREDENTIAL_SECONDS": env.int("QOS_CREDENTIAL_SECONDS", default=3600),
    "UNUSED_SECONDS": env.float("QOS_UNUSED_SECONDS", default=60.0),
    "MAX_PER_SESSION": env.int("QOS_MAX_PER_SESSION", default=4),
    "MAX_PER_SUBJECT": env.int("QOS_MAX_PER_SUBJECT", default=20),
    "POLL_SECONDS": env.float("QOS_POLL_SECONDS", default=15.0),
    "KEPT_DAYS": env.int("QOS_KEPT_DAYS", default=90),
    # credentials are given over TLS, or on the machine of a newcomer
    "GIVES_CREDENTIALS": NODE_MODE == "embedded" or POLICY["USES_TLS"],
}
if QOS["BROKER"] not in ("", "embedded") and "://" not in QOS["BROKER"]:
    raise ImproperlyConfigured(
        f"QOS_BROKER is {QOS['BROKER']!r}; it is empty, embedded or the URL of a broker."
    )
