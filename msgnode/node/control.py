"""The handlers of control messages, that is changes made by processes that are not workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgnode.allocation.component import AllocationComponent
from msgnode.bus.last_owners import LastOwnerCache
from msgnode.connectors import registration_news
from msgnode.connectors.registration_news import RegistrationNews
from msgnode.devices.mqtt.topics import TOPICS_CHANGED
from msgnode.federation.store import CHANGED as PEERS_CHANGED
from msgnode.federation.store import RESTART as PEERS_RESTART
from msgnode.invitations.wire import LEFT
from msgnode.monitoring import alarm_rules
from msgnode.monitoring.alarm_rules import AlarmRules
from msgnode.policy.service import PolicyService
from msgnode.sessions.connection_limits import ConnectionLimits
from msgnode.sessions.manager import SessionManager
from msgnode.storage.control import Handler
from msgnode.storage.writer import GroupWriter
from msgnode.subscriptions.component import SubscriptionComponent
from msgnode.workers.control_handlers import ControlHandlers

if TYPE_CHECKING:
    from msgnode.devices.mqtt.connector import MqttConnector
    from msgnode.federation.service import Federation
    from msgnode.identity.service import IdentityService
    from msgnode.workers.cluster import Cluster

    from .invitations import Invitations


def control_handlers(
    sessions: SessionManager,
    sockets: ConnectionLimits,
    allocation: AllocationComponent,
    subscriptions: SubscriptionComponent,
    owners: LastOwnerCache,
    writer: GroupWriter,
    policy: PolicyService,
    rules: AlarmRules,
    news: RegistrationNews,
    identities: IdentityService,
    federation: Federation | None,
    mqtt: MqttConnector | None,
    invitations: Invitations | None,
    cluster: Cluster | None,
) -> dict[str, Handler]:
    """The handler of each kind of change."""
    orders = None if cluster is None else cluster.orders
    ordered = ControlHandlers(sessions, sockets, allocation, subscriptions, owners, writer, orders)
    return {
        **ordered.handlers(),
        "policies.published": policy.published,
        alarm_rules.CHANGED: rules.changed,
        registration_news.KIND: news.tell,
        **identities.control_handlers(),
        **dict.fromkeys((PEERS_CHANGED, PEERS_RESTART), _passed_over),
        **({} if federation is None else federation.handlers()),
        TOPICS_CHANGED: _passed_over if mqtt is None else mqtt.topics_changed,
        LEFT: _passed_over if invitations is None else invitations.delivery.left,
    }


def _passed_over(payload: dict[str, Any]) -> None:
    """Ignore a change of a part that this worker does not have."""
