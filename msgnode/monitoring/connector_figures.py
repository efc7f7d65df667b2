"""A worker's metrics of its connectors, and the state of its components, stored for the console."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from django.utils import timezone
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from msgnode import models
from msgnode.bus.periodic import every
from msgnode.bus.ports import ComponentInfo
from msgnode.bus.writing import Call, Writer
from msgnode.core.redaction import cut, without_persons

from .collector import counter, gauge

_FIELDS = ("kind", "address", "state", "since", "answered", "failed", "last_error", "seen_at")
_GONE_AFTER = timedelta(minutes=5)


class StatusReport:
    """Writes the state of the components where the console finds it."""

    def __init__(
        self,
        writer: Writer,
        worker: str,
        component_infos: Callable[[], Awaitable[list[ComponentInfo]]],
        every: float = 5.0,
    ) -> None:
        self._writer = writer
        self._worker = worker
        self._component_infos = component_infos
        self._every = every

    async def run(self) -> None:
        """Runs until cancelled."""
        says = "The status of the components could not be written"
        await every(self._every, self.write, "status", says, is_first_at_once=True)

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
    yield gauge("webhooks", "Sessions with a webhook at this worker.", value=len(webhooks))
    posts = CounterMetricFamily(
        "msgnode_webhook_posts", "Requests to webhooks by outcome.", labels=("outcome",)
    )
    posts.add_metric(("delivered",), webhooks.counters.delivered)
    posts.add_metric(("failed",), webhooks.counters.failed)
    yield posts
    text = "Webhooks that were removed: their servers said 410, or nothing for a day."
    yield counter("webhooks_removed", text, webhooks.counters.removed)
    text = "Messages in answers of webhooks that were not carried."
    yield counter("webhook_messages_refused", text, webhooks.counters.refused)


def wakeups(wakeups: PushWakeups) -> Iterator[Metric]:
    """The pushes to push services."""
    number = len(wakeups)
    yield gauge("push_subscriptions", "Sessions that are woken by push.", value=number)
    counted = CounterMetricFamily(
        "msgnode_push_wakeups", "Wake-ups by outcome.", labels=("outcome",)
    )
    counted.add_metric(("sent",), wakeups.counters.sent)
    counted.add_metric(("failed",), wakeups.counters.failed)
    yield counted


def invitations(
    service: InvitationService, delivery: InvitationDelivery, guests: Guests
) -> Iterator[Metric]:
    """Metrics of sent and received invitations and of guests."""
    steps = CounterMetricFamily("msgnode_invitations", "Invitations by step.", labels=("step",))
    for step in ("sent", "withdrawn", "withdrawal_untold", "ended_by_user", "reopened"):
        steps.add_metric((step,), service.steps[step])
    for step in ("delivered", "withdrawal_delivered"):
        steps.add_metric((step,), delivery.steps[step])
    yield steps
    yield gauge("guests", "Sessions that speak by an invitation.", value=len(guests))
    steps = CounterMetricFamily("msgnode_guest_steps", "Guests by step.", labels=("step",))
    for step in ("admitted", "refused", "ended"):
        steps.add_metric((step,), guests.steps[step])
    yield steps


def mqtt(mqtt: MqttConnector) -> Iterator[Metric]:
    """The MQTT connector; where another worker serves the broker, all but the counters are 0."""
    from msgnode.devices.mqtt.connector import CONNECTED, STANDBY  # here, where there is one

    text = "Whether this worker is the one that serves the MQTT broker."
    yield gauge("mqtt_serves", text, value=int(mqtt.state != STANDBY))
    text = "Whether it is connected to the broker."
    yield gauge("mqtt_connected", text, value=int(mqtt.state == CONNECTED))
    yield gauge("mqtt_devices", "Devices with an open session.", value=mqtt.devices)
    yield gauge("mqtt_topics", "Sensor topics that are connected.", value=mqtt.topics)
    yield gauge("mqtt_objects", "Data objects of sensors.", value=mqtt.objects)
    text = "Messages of QoS 1 that were read and not carried yet."
    yield gauge("mqtt_unacknowledged", text, value=mqtt.unacknowledged)
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
    requests = CounterMetricFamily(
        "msgnode_qos_requests", "Requests by what they ask for and code.", labels=("asked", "code")
    )
    for (asked, code), number in qos.connector.requests.copy().items():
        requests.add_metric((asked, str(code)), number)
    yield requests
    ended = CounterMetricFamily(
        "msgnode_qos_ended", "Reservations that have ended, by reason.", labels=("reason",)
    )
    supervisor = qos.supervisor
    for reason, number in supervisor.ended.copy().items():
        ended.add_metric((reason,), number)
    yield ended
    relays = supervisor.relays
    text = "Whether this worker supervises reservations and TURN servers."
    yield gauge("qos_supervises", text, value=int(supervisor.supervises))
    text = "Whether it hears from their Redis what TURN servers carry."
    metric = GaugeMetricFamily("msgnode_qos_redis_up", text)
    if relays is not None and relays.hears is not None:
        metric.add_metric((), int(relays.hears))
    yield metric
    carried = CounterMetricFamily(
        "msgnode_qos_bytes", "Bytes of peers that were relayed, as counted.", labels=("direction",)
    )
    carried.add_metric(("received",), relays.received if relays else 0)
    carried.add_metric(("sent",), relays.sent if relays else 0)
    yield carried
    text = "Events of allocations that found no room to be counted."
    yield counter("qos_uncounted", text, relays.uncounted if relays else 0)
