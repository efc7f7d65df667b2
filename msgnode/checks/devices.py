"""Checks of what is set for devices: their broker, webhooks and push (E016 to E019)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from urllib.parse import urlsplit

from django.conf import settings

from msgnode.core.networks import not_networks


def faults() -> Iterator[tuple[str, str, str]]:
    """What each way of reaching devices needs, where it is switched on."""
    yield from _mqtt()
    yield from _webhooks()
    yield from _push()


def _mqtt() -> Iterator[tuple[str, str, str]]:
    mqtt = settings.MQTT
    if not mqtt["URL"]:
        return
    try:
        url = urlsplit(mqtt["URL"])
        is_good = url.scheme in ("mqtt", "mqtts") and bool(url.hostname) and url.port != 0
    except ValueError:  # a port that is none
        is_good = False
    if not is_good:
        hint = "Set the broker's URL: mqtt://name:password@broker.example.org:1883, or mqtts://."
        yield "E016", "MQTT_URL is not the URL of a broker.", hint
    for name in ("CA_FILE", "CERT_FILE"):
        if mqtt[name] and not os.access(mqtt[name], os.R_OK):
            text = f"MQTT_{name} {mqtt[name]} cannot be read."
            yield "E016", text, "Name a PEM file that the user who runs the node can read."
    if not mqtt["PREFIX"] or any(mark in mqtt["PREFIX"] for mark in "+#$"):
        text = f"MQTT_PREFIX is {mqtt['PREFIX']!r}."
        yield "E016", text, "Set the prefix of the devices' topics: levels without wildcards."
    if not 0 < mqtt["WINDOW"] <= 65_535:
        yield "E017", f"MQTT_WINDOW is {mqtt['WINDOW']}.", "It is 1 to 65535."
    if not mqtt["MESSAGES_PER_SECOND"] > 0:
        text = f"MQTT_MESSAGES_PER_SECOND is {mqtt['MESSAGES_PER_SECOND']}."
        yield "E017", text, "It is more than zero."


def _webhooks() -> Iterator[tuple[str, str, str]]:
    if settings.DEVICE_WEBHOOKS and not settings.DEVICE_HTTP:
        text = "DEVICE_WEBHOOKS is on, but DEVICE_HTTP is off."
        yield "E018", text, "A webhook belongs to a session over HTTP: set DEVICE_HTTP=true too."
    for each in not_networks(settings.WEBHOOK_NETWORKS):
        text = f"WEBHOOK_NETWORKS names {each!r}."
        yield "E018", text, "Networks, such as 10.1.0.0/16, separated by commas."


def _push() -> Iterator[tuple[str, str, str]]:
    if not settings.PUSH_CONTACT:
        return
    if not settings.DEVICE_HTTP:
        hint = "A push subscription belongs to a session over HTTP: set DEVICE_HTTP=true too."
        yield "E019", "PUSH_CONTACT is set, but DEVICE_HTTP is off.", hint
    if not settings.PUSH_CONTACT.startswith(("mailto:", "https://")):
        hint = "Set a contact for the push services: mailto:operator@example.org, or https://…"
        yield "E019", f"PUSH_CONTACT is {settings.PUSH_CONTACT!r}.", hint
