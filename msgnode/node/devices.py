"""Builds the parts of a worker that serve devices, if they are enabled.

The code of those that are not is not loaded: each function imports what it builds.
"""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from django.conf import settings

from msgnode.bus.ports import Proof
from msgnode.monitoring import connector_figures
from msgnode.net.http import HttpClient
from msgnode.sessions.handshake import ConnectionParts
from msgnode.storage.claims import WorkerClaim

from .base import Base, DeviceRoom, Prove, Sessions
from .subsystem import Jobs, Subsystem, until_stopped

if TYPE_CHECKING:
    from msgnode.devices.devices import Devices
    from msgnode.devices.outlet_store import OutletRecovery, OutletStore
    from msgnode.devices.push import PushWakeups
    from msgnode.devices.resumption import DeviceSessions
    from msgnode.devices.webhook import Webhooks
    from msgnode.workers.cluster import Cluster
    from msgnode.workers.lone import LoneWorker


def mqtt_connector(base: Base, parts: ConnectionParts) -> tuple[Subsystem, ...]:
    """Build the connector to the operator's MQTT broker."""
    if not settings.MQTT["URL"]:
        return ()
    from msgnode.devices.mqtt import rows
    from msgnode.devices.mqtt.connector import MqttConnector, MqttSettings
    from msgnode.devices.mqtt.session import BrokerSessions
    from msgnode.devices.mqtt.topics import TOPICS_CHANGED

    limits: dict[str, Any] = settings.NODE
    rate = settings.MQTT["MESSAGES_PER_SECOND"]
    flow = replace(parts.settings.flow, messages_per_second=rate)
    of_sensors = replace(parts, settings=replace(parts.settings, flow=flow))
    lease = base.lease
    mqtt = MqttConnector(
        MqttSettings(
            base.domain,
            rows.address(settings.MQTT, int(limits["MAX_FRAME_BYTES"])),
            settings.MQTT["PREFIX"],
            limits["PING_TIMEOUT"],
        ),
        BrokerSessions(parts),
        BrokerSessions(of_sensors),
        WorkerClaim("mqtt", base.me.epoch, base.writer),
        lambda: lease.is_held,
        partial(rows.read, base.writer),
        base.alarms.raise_alarm,
        base.alarms.clear_alarm,
    )
    room = Subsystem(
        serve=lambda: [until_stopped(mqtt.run)],
        handlers={TOPICS_CHANGED: mqtt.topics_changed},
        infos=lambda: [mqtt.update_info()],
        state=lambda: ("mqtt", mqtt.state),
        metrics=partial(connector_figures.mqtt, mqtt),
        drain=mqtt.stop,
        abort=mqtt.abort,
    )
    return (room,)


def devices(
    base: Base,
    sessions: Sessions,
    parts: ConnectionParts,
    prove: Prove,
    cluster: Cluster | LoneWorker,
) -> DeviceRoom:
    """Build the sessions of devices without a WebSocket, their HTTP API, and their outlets."""
    if not settings.DEVICE_HTTP:
        return DeviceRoom()
    from msgnode.devices import forwarding
    from msgnode.devices.api import DeviceApi, DeviceSettings
    from msgnode.devices.devices import Devices
    from msgnode.devices.outlet_store import OutletStore
    from msgnode.devices.outlets import Outlets
    from msgnode.devices.resumption import DeviceSessions
    from msgnode.identity import service_accounts
    from msgnode.identity.encryption import decrypt, encrypt

    limits: dict[str, Any] = settings.NODE
    manager, max_bytes = sessions.manager, int(limits["MAX_FRAME_BYTES"])
    devices = Devices(
        sessions.sockets,
        manager.queues,
        buffer_bytes=limits["OUTBOX_BYTES"] // 4,
        idle=limits["PING_TIMEOUT"],
    )
    manager.on_closed.append(devices.session_closed)
    manager.on_handed_off.append(devices.session_left)
    store = OutletStore(base.writer, encrypt, decrypt)
    webhooks = _webhooks(base, store)
    wakeups = _push_wakeups(base, devices, store)
    opener = DeviceSessions(parts, partial(_prove, prove), devices)
    api = DeviceApi(
        opener,
        DeviceSettings(settings.WS_ORIGINS, max_bytes, limits["GRACE_PERIOD"]),
        cluster,
        Outlets(max_bytes, store, webhooks, service_accounts.may_have_webhooks, wakeups),
    )
    cluster.rpc.answer_calls(forwarding.KIND, api.answer)
    rooms = [Subsystem(refuse=devices.close)]
    if webhooks is not None:
        figures = partial(connector_figures.webhooks, webhooks)
        rooms.append(Subsystem(stop=webhooks.stop, metrics=figures))
    if wakeups is not None:
        figures = partial(connector_figures.wakeups, wakeups)
        rooms.append(Subsystem(serve=_running(wakeups), stop=wakeups.close, metrics=figures))
    if webhooks is not None or wakeups is not None:
        recovery = _recovery(sessions, store, opener, webhooks, wakeups)
        rooms.append(Subsystem(serve=_running(recovery)))
    return DeviceRoom(api, tuple(rooms))


def _running(
    part: PushWakeups | OutletRecovery,
) -> Jobs:
    return lambda: [part.run()]


def _webhooks(base: Base, store: OutletStore) -> Webhooks | None:
    """Build the sender of webhooks to network servers."""
    if not settings.DEVICE_WEBHOOKS:
        return None
    from msgnode.devices.outlet_store import WEBHOOK
    from msgnode.devices.outlets import WEBHOOK_SECONDS
    from msgnode.devices.webhook import Webhooks

    client, lease = http_client(WEBHOOK_SECONDS), base.lease
    return Webhooks(client, lambda: lease.is_held, partial(store.forget, kind=WEBHOOK))


def _push_wakeups(base: Base, devices: Devices, store: OutletStore) -> PushWakeups | None:
    """Build the sender of push messages that wake devices."""
    if not settings.PUSH_CONTACT:
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
        base.alarms.raise_alarm,
        partial(store.forget, kind=PUSH),
    )


def _recovery(
    sessions: Sessions,
    store: OutletStore,
    opener: DeviceSessions,
    webhooks: Webhooks | None,
    wakeups: PushWakeups | None,
) -> OutletRecovery:
    """Build what opens the outlets of sessions again that come from elsewhere."""
    from msgnode.devices.outlet_store import OutletRecovery
    from msgnode.identity import service_accounts

    recovery = OutletRecovery(
        store,
        opener,
        sessions.manager.sessions.get,
        webhooks,
        wakeups,
        service_accounts.may_have_webhooks,
    )
    sessions.manager.on_adopted.append(recovery.arrived)
    if webhooks is not None:
        webhooks.on_lost.append(recovery.arrived)
    return recovery


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
