"""The policy engine: what it decides by default, its log, and the mail of its obligations."""

from __future__ import annotations

from typing import Any

from .environment import DOMAIN, env

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
ALARM_WEBHOOK_HOSTS: list[str] = env.list("ALARM_WEBHOOK_HOSTS", default=[])
DEFAULT_FROM_EMAIL: str = env("DEFAULT_FROM_EMAIL", default=f"node@{DOMAIN}")
