"""Builds the parts of a worker that serve devices, if they are enabled.

The code of those that are not is not loaded: each function imports what it builds.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from django.conf import settings

from msgnode.bus.pipeline import Pipeline
from msgnode.bus.ports import Proof
from msgnode.net.http import HttpClient
from msgnode.sessions.connection import ConnectionSettings
from msgnode.sessions.connection_limits import ConnectionLimits
from msgnode.sessions.handshake import SessionHandshake
from msgnode.sessions.manager import SessionManager
from msgnode.storage.claims import WorkerClaim
from msgnode.storage.writer import GroupWriter
from msgnode.workers.lease import Lease

from .alarms import Alarms

if TYPE_CHECKING:
    from msgnode.devices.api import DeviceApi
    from msgnode.devices.devices import Devices
    from msgnode.devices.mqtt.connector import MqttConnector
    from msgnode.devices.outlet_recovery import OutletRecovery
    from msgnode.devices.outlet_store import OutletStore
    from msgnode.devices.push import PushWakeups
    from msgnode.devices.webhook import Webhooks
    from msgnode.workers.cluster import Cluster

Prove = Callable[[str], Awaitable[Proof]]


def devices_without_sockets(sessions: SessionManager, sockets: ConnectionLimits) -> Devices | None:
    """Build the sessions of devices without a WebSocket, and connect them to the others."""
    if not settings.DEVICE_HTTP:
        return None
    from msgnode.devices.devices import Devices

    limits: dict[str, Any] = settings.NODE
    devices = Devices(
        sockets,
        sessions.queues,
        buffer_bytes=limits["OUTBOX_BYTES"] // 4,
        idle=limits["PING_TIMEOUT"],
    )
    sessions.on_closed.append(devices.session_closed)
    sessions.on_handed_off.append(devices.session_left)
    return devices


def mqtt_connector(
    epoch: str,
    pipeline: Pipeline,
    sessions: SessionManager,
    sockets: ConnectionLimits,
    connections: ConnectionSettings,
    writer: GroupWriter,
    lease: Lease,
    alarms: Alarms,
) -> MqttConnector | None:
    """Build the connector to the operator's MQTT broker."""
    if not settings.MQTT["URL"]:
        return None
    from msgnode.devices.mqtt import rows as mqtt_rows
    from msgnode.devices.mqtt.connector import MqttConnector, MqttSettings
    from msgnode.devices.mqtt.sessions import BrokerSessions

    limits: dict[str, Any] = settings.NODE
    rate = settings.MQTT["MESSAGES_PER_SECOND"]
    of_sensors = replace(connections, flow=replace(connections.flow, messages_per_second=rate))
    parts = (pipeline, sessions, sockets)
    return MqttConnector(
        MqttSettings(
            settings.DOMAIN,
            mqtt_rows.address(settings.MQTT, int(limits["MAX_FRAME_BYTES"])),
            settings.MQTT["PREFIX"],
            limits["PING_TIMEOUT"],
        ),
        BrokerSessions(*parts, connections),
        BrokerSessions(*parts, of_sensors),
        WorkerClaim("mqtt", epoch, writer),
        lambda: lease.is_held,
        partial(mqtt_rows.read, writer),
        alarms.raise_alarm,
        alarms.clear_alarm,
    )


def outlet_store(devices: Devices | None, writer: GroupWriter) -> OutletStore | None:
    """Build the store of webhooks and push subscriptions, if there are devices to have some."""
    if devices is None:
        return None
    from msgnode.devices.outlet_store import OutletStore
    from msgnode.identity.encryption import decrypt, encrypt

    return OutletStore(writer, encrypt, decrypt)


def webhooks(store: OutletStore | None, lease: Lease) -> Webhooks | None:
    """Build the sender of webhooks to network servers."""
    if store is None or not settings.DEVICE_WEBHOOKS:
        return None
    from msgnode.devices.outlet_store import WEBHOOK
    from msgnode.devices.outlets import WEBHOOK_SECONDS
    from msgnode.devices.webhook import Webhooks

    client = http_client(WEBHOOK_SECONDS)
    return Webhooks(client, lambda: lease.is_held, partial(store.forget, kind=WEBHOOK))


def push_wakeups(
    devices: Devices | None, store: OutletStore | None, alarms: Alarms
) -> PushWakeups | None:
    """Build the sender of push messages that wake devices."""
    if devices is None or store is None or not settings.PUSH_CONTACT:
        return None
    from msgnode.devices.outlet_store import PUSH
    from msgnode.devices.outlets import WEBHOOK_SECONDS
    from msgnode.devices.push import PushKey, PushWakeups

    return PushWakeups(
        PushKey(settings.SECRET_KEY, settings.PUSH_CONTACT),
        settings.PUSH_HOSTS,
        http_client(WEBHOOK_SECONDS),
        devices,
        settings.NODE["GRACE_PERIOD"],
        alarms.raise_alarm,
        partial(store.forget, kind=PUSH),
    )


def device_api(
    outlets: tuple[OutletStore | None, Webhooks | None, PushWakeups | None],
    devices: Devices | None,
    pipeline: Pipeline,
    sessions: SessionManager,
    handshake: SessionHandshake,
    sockets: ConnectionLimits,
    connections: ConnectionSettings,
    prove: Prove,
    cluster: Cluster | None,
) -> tuple[DeviceApi | None, OutletRecovery | None]:
    """Build the HTTP API of devices, which other workers use too, and the recovery of outlets."""
    store, webhooks, wakeups = outlets
    if devices is None or store is None:
        return None, None
    from msgnode.devices import forwarding
    from msgnode.devices.api import DeviceApi, DeviceSettings
    from msgnode.devices.outlet_recovery import OutletRecovery
    from msgnode.devices.outlets import Outlets
    from msgnode.devices.resumption import DeviceSessions
    from msgnode.identity import service_accounts

    limits: dict[str, Any] = settings.NODE
    max_bytes = int(limits["MAX_FRAME_BYTES"])
    opener = DeviceSessions(
        pipeline, sessions, handshake, sockets, connections, partial(_prove, prove), devices
    )
    api = DeviceApi(
        opener,
        DeviceSettings(settings.WS_ORIGINS, max_bytes, limits["GRACE_PERIOD"]),
        cluster,
        Outlets(max_bytes, store, webhooks, service_accounts.may_have_webhooks, wakeups),
    )
    if cluster is not None:
        cluster.network.rpc.answer_calls(forwarding.KIND, api.answer)
    if webhooks is None and wakeups is None:
        return api, None
    recovery = OutletRecovery(
        store,
        opener,
        sessions.sessions.get,
        webhooks,
        wakeups,
        service_accounts.may_have_webhooks,
    )
    sessions.on_adopted.append(recovery.arrived)
    if webhooks is not None:
        webhooks.on_lost.append(recovery.arrived)
    return api, recovery


async def _prove(prove: Prove, text: str, source: str) -> Proof:
    """Verify the credentials with which a device or a network server opens its session."""
    from msgnode.identity import service_accounts  # loaded with the API

    if service_accounts.is_key(text):
        return await service_accounts.prove(text, source)
    return await prove(text)


def http_client(seconds: float, max_body: int = 1024 * 1024) -> HttpClient:
    """Build an HTTP client that is safe for URLs given by clients."""
    networks = [ipaddress.ip_network(each) for each in settings.WEBHOOK_NETWORKS]
    return HttpClient(networks, seconds, max_body)
