"""A worker's metrics of its connectors, and the state of its components, stored for the console."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from django.utils import timezone
from prometheus_client.core import Metric

from msgnode import models
from msgnode.bus.periodic import every
from msgnode.bus.ports import ComponentInfo
from msgnode.bus.writing import Call, Writer
from msgnode.core.redaction import cut, without_persons

from .collector import counter, gauge

_FIELDS = ("kind", "address", "state", "since", "answered", "failed", "last_error", "seen_at")
_SECONDS = 5.0
_GONE_AFTER = timedelta(minutes=5)


class StatusReport:
    """Writes the state of the components where the console finds it."""

    def __init__(
        self,
        writer: Writer,
        worker: str,
        component_infos: Callable[[], Awaitable[list[ComponentInfo]]],
    ) -> None:
        self._writer = writer
        self._worker = worker
        self._component_infos = component_infos

    async def run(self) -> None:
        """Runs until cancelled."""
        says = "The status of the components could not be written"
        await every(_SECONDS, self.write, "status", says, is_first_at_once=True)

    async def write(self) -> None:
        """Write the row of each component, and delete rows that are no longer updated."""
        now = timezone.now()
        rows = [
            models.ComponentStatus(
                worker=self._worker,
                name=info.name,
                kind=info.kind,
                address=info.address,
                state=info.state,
                since=info.since,
                answered=info.answered,
                failed=info.failed,
                last_error=without_persons(cut(info.last_error)),
                seen_at=now,
            )
            for info in await self._component_infos()
        ]

        def save() -> None:
            models.ComponentStatus.objects.filter(seen_at__lt=now - _GONE_AFTER).delete()
            models.ComponentStatus.objects.bulk_create(
                rows,
                update_conflicts=True,
                update_fields=_FIELDS,
                unique_fields=("worker", "name"),
            )

        await self._writer.submit(Call(save))


if TYPE_CHECKING:
    from msgnode.devices.mqtt.connector import MqttConnector
    from msgnode.devices.push import PushWakeups
    from msgnode.devices.webhook import Webhooks
    from msgnode.invitations.delivery import InvitationDelivery
    from msgnode.invitations.guests import Guests
    from msgnode.invitations.service import InvitationService
    from msgnode.qos.service import QosService


def webhooks(webhooks: Webhooks) -> Iterator[Metric]:
    """The webhooks to network servers."""
    yield gauge("webhooks", "Sessions with a webhook at this worker.", len(webhooks))
    posts = {"delivered": webhooks.counters.delivered, "failed": webhooks.counters.failed}
    text = "Requests to webhooks by outcome."
    yield counter("webhook_posts", text, posts, "outcome")
    text = "Webhooks that were removed: their servers said 410, or nothing for a day."
    yield counter("webhooks_removed", text, webhooks.counters.removed)
    text = "Messages in answers of webhooks that were not carried."
    yield counter("webhook_messages_refused", text, webhooks.counters.refused)


def wakeups(wakeups: PushWakeups) -> Iterator[Metric]:
    """The pushes to push services."""
    number = len(wakeups)
    yield gauge("push_subscriptions", "Sessions that are woken by push.", number)
    counts = {"sent": wakeups.counters.sent, "failed": wakeups.counters.failed}
    yield counter("push_wakeups", "Wake-ups by outcome.", counts, "outcome")


def invitations(
    service: InvitationService, delivery: InvitationDelivery, guests: Guests
) -> Iterator[Metric]:
    """Metrics of sent and received invitations and of guests."""
    sent = ("sent", "withdrawn", "withdrawal_untold", "ended_by_user", "reopened")
    steps = {step: service.steps[step] for step in sent}
    steps |= {step: delivery.steps[step] for step in ("delivered", "withdrawal_delivered")}
    yield counter("invitations", "Invitations by step.", steps, "step")
    yield gauge("guests", "Sessions that speak by an invitation.", len(guests))
    steps = {step: guests.steps[step] for step in ("admitted", "refused", "ended")}
    yield counter("guest_steps", "Guests by step.", steps, "step")


def mqtt(mqtt: MqttConnector) -> Iterator[Metric]:
    """The MQTT connector; where another worker serves the broker, all but the counters are 0."""
    from msgnode.devices.mqtt.connector import CONNECTED, STANDBY  # here, where there is one

    text = "Whether this worker is the one that serves the MQTT broker."
    yield gauge("mqtt_serves", text, int(mqtt.state != STANDBY))
    text = "Whether it is connected to the broker."
    yield gauge("mqtt_connected", text, int(mqtt.state == CONNECTED))
    yield gauge("mqtt_devices", "Devices with an open session.", mqtt.devices)
    yield gauge("mqtt_topics", "Sensor topics that are connected.", mqtt.topics)
    yield gauge("mqtt_objects", "Data objects of sensors.", mqtt.objects)
    text = "Messages of QoS 1 that were read and not carried yet."
    yield gauge("mqtt_unacknowledged", text, mqtt.unacknowledged)
    counters = mqtt.counters
    for name, text, value in (
        ("received", "Messages from the broker.", counters.received),
        ("published", "Messages to the broker that it has.", counters.published),
        ("not_taken", "Messages to the broker that it does not take.", counters.not_taken),
        ("repeated", "Messages that came again and were not carried twice.", counters.repeated),
        ("refused", "Messages that no session could carry.", counters.refused),
        ("dropped", "Messages of QoS 0 that came faster than they may.", counters.dropped),
        ("lost_connections", "Connections lost or not made.", counters.lost_connections),
    ):
        yield counter(f"mqtt_{name}", text, value)


def qos(qos: QosService) -> Iterator[Metric]:
    """The QoS broker; where another worker supervises, that one counts what ends and is carried."""
    text = "Requests by what they ask for and code."
    yield counter("qos_requests", text, qos.connector.requests, "asked code")
    supervisor = qos.supervisor
    text = "Reservations that have ended, by reason."
    yield counter("qos_ended", text, supervisor.ended, "reason")
    relays = supervisor.relays
    text = "Whether this worker supervises reservations and TURN servers."
    yield gauge("qos_supervises", text, int(supervisor.supervises))
    text = "Whether it hears from their Redis what TURN servers carry."
    hears = relays.hears if relays is not None else None
    yield gauge("qos_redis_up", text, {} if hears is None else int(hears))
    received, sent = (relays.received, relays.sent) if relays else (0, 0)
    text = "Bytes of peers that were relayed, as counted."
    yield counter("qos_bytes", text, {"received": received, "sent": sent}, "direction")
    text = "Events of allocations that found no room to be counted."
    yield counter("qos_uncounted", text, relays.uncounted if relays else 0)
