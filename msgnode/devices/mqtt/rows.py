"""The settings of the broker and the rows of sensor topics."""

from __future__ import annotations

import ssl
from typing import Any
from urllib.parse import unquote, urlsplit

from msgnode import models
from msgnode.bus.writing import Writer, result_of

from .broker_client import BrokerAddress
from .sensors import SensorTopic


def address(options: dict[str, Any], max_bytes: int) -> BrokerAddress:
    """The broker of the settings, which were checked before (msgnode/checks.py)."""
    url = urlsplit(options["URL"])
    tls: ssl.SSLContext | None = None
    if url.scheme == "mqtts":
        tls = ssl.create_default_context(cafile=options["CA_FILE"] or None)
        if options["CERT_FILE"]:
            tls.load_cert_chain(options["CERT_FILE"])
    return BrokerAddress(
        url.hostname or "",
        url.port or (1883 if tls is None else 8883),
        unquote(url.username) if url.username else None,
        unquote(url.password) if url.password else None,
        tls,
        options["WINDOW"],
        max_bytes,
    )


async def read(writer: Writer) -> list[SensorTopic]:
    """The sensor topics that are enabled."""
    return await result_of(writer, _topics)


def _topics() -> list[SensorTopic]:
    return [
        SensorTopic(
            row.pk,
            row.topic,
            row.object,
            row.attribute,
            tuple(filter(None, row.path.split("."))),
            row.schema,
            row.command_topic,
            row.command_form,
        )
        for row in models.MqttTopic.objects.filter(is_enabled=True)
    ]
