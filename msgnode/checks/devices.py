"""Checks of what is set for devices: their broker, webhooks and push (E016 to E019)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error

from msgnode.core.networks import not_networks


def faults() -> Iterator[CheckMessage]:
    """What each way of reaching devices needs, where it is switched on."""
    yield from _mqtt()
    yield from _webhooks()
    yield from _push()


def _mqtt() -> Iterator[CheckMessage]:
    mqtt = settings.MQTT
    if not mqtt["URL"]:
        return
    try:
        url = urlsplit(mqtt["URL"])
        is_good = url.scheme in ("mqtt", "mqtts") and bool(url.hostname) and url.port != 0
    except ValueError:  # a port that is none
        is_good = False
    if not is_good:
        yield Error(
            "MQTT_URL is not the URL of a broker.",
            hint="Set the broker's URL: mqtt://name:password@broker.example.org:1883, or mqtts://.",
            id="msgnode.E016",
        )
    for name in ("CA_FILE", "CERT_FILE"):
        if mqtt[name] and not os.access(mqtt[name], os.R_OK):
            yield Error(
                f"MQTT_{name} {mqtt[name]} cannot be read.",
                hint="Name a PEM file that the user who runs the node can read.",
                id="msgnode.E016",
            )
    if not mqtt["PREFIX"] or any(mark in mqtt["PREFIX"] for mark in "+#$"):
        yield Error(
            f"MQTT_PREFIX is {mqtt['PREFIX']!r}.",
            hint="Set the prefix of the devices' topics: levels without wildcards.",
            id="msgnode.E016",
        )
    if not 0 < mqtt["WINDOW"] <= 65_535:
        yield Error(
            f"MQTT_WINDOW is {mqtt['WINDOW']}.", hint="It is 1 to 65535.", id="msgnode.E017"
        )
    if not mqtt["MESSAGES_PER_SECOND"] > 0:
        yield Error(
            f"MQTT_MESSAGES_PER_SECOND is {mqtt['MESSAGES_PER_SECOND']}.",
            hint="It is more than zero.",
            id="msgnode.E017",
        )


def _webhooks() -> Iterator[CheckMessage]:
    if settings.DEVICE_WEBHOOKS and not settings.DEVICE_HTTP:
        yield Error(
            "DEVICE_WEBHOOKS is on, but DEVICE_HTTP is off.",
            hint="A webhook belongs to a session over HTTP: set DEVICE_HTTP=true too.",
            id="msgnode.E018",
        )
    for each in not_networks(settings.WEBHOOK_NETWORKS):
        yield Error(
            f"WEBHOOK_NETWORKS names {each!r}.",
            hint="Networks, such as 10.1.0.0/16, separated by commas.",
            id="msgnode.E018",
        )


def _push() -> Iterator[CheckMessage]:
    if not settings.PUSH_CONTACT:
        return
    if not settings.DEVICE_HTTP:
        yield Error(
            "PUSH_CONTACT is set, but DEVICE_HTTP is off.",
            hint="A push subscription belongs to a session over HTTP: set DEVICE_HTTP=true too.",
            id="msgnode.E019",
        )
    if not settings.PUSH_CONTACT.startswith(("mailto:", "https://")):
        yield Error(
            f"PUSH_CONTACT is {settings.PUSH_CONTACT!r}.",
            hint="Set a contact for the push services: mailto:operator@example.org, or https://…",
            id="msgnode.E019",
        )
