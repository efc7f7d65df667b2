"""The operator's MQTT broker, for devices and sensors behind it (docs/connectors.md)."""

from __future__ import annotations

from typing import Any

from .environment import env

MQTT: dict[str, Any] = {
    "URL": env("MQTT_URL", default=""),
    "PREFIX": env("MQTT_PREFIX", default="rethink").strip("/"),
    "CA_FILE": env("MQTT_CA_FILE", default=""),
    "CERT_FILE": env("MQTT_CERT_FILE", default=""),
    "KEY_FILE": env("MQTT_KEY_FILE", default=""),
    # messages of QoS 1 that the broker sends before the first of them is acknowledged
    "WINDOW": env.int("MQTT_WINDOW", default=1_000),
    # of each sensor topic; above it the broker is held back
    "MESSAGES_PER_SECOND": env.int("MQTT_MESSAGES_PER_SECOND", default=5_000),
}
