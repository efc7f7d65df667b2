"""The node's durable state: rows only, the rules live in the packages.

The database is the truth; the routing table is a worker's memory of its part of it. Rows of
sessions, allocations and subscriptions are written by the workers in group commits before they are
acknowledged; an operator's change in the console reaches the workers through ControlMessage.
"""

from __future__ import annotations

from .devices import DeviceOutlet, MqttTopic
from .federation import (
    LegacyAddress,
    LegacyNetwork,
    Peer,
    PeerMessage,
    PeerStub,
    PeerSubscription,
    StoredMessage,
)
from .identities import (
    ApiKey,
    FormerClientSecret,
    IdentityBinding,
    Issuer,
    OperatorIdentity,
    ProviderKey,
    Revocation,
    RoleAccess,
    RoleOfGroup,
    SecondFactor,
)
from .invitations import Invitation, PushEndpoint, SentInvitation
from .lengths import ADDRESS_LENGTH
from .operations import (
    Alarm,
    AlarmNotice,
    AlarmRule,
    AuditEntry,
    ComponentStatus,
    NodeSample,
    WebhookHost,
)
from .scripts import Connector, ConnectorScript, ConnectorSecret, KeptEntry
from .sessions import AddressOwner, AddressPool, Allocation, Ban, PoolAddress, Session, Subscription
from .workers import ControlMessage, Worker, WorkerClaim

__all__ = [
    "ADDRESS_LENGTH",
    "AddressOwner",
    "AddressPool",
    "Alarm",
    "AlarmNotice",
    "AlarmRule",
    "Allocation",
    "ApiKey",
    "AuditEntry",
    "Ban",
    "ComponentStatus",
    "Connector",
    "ConnectorScript",
    "ConnectorSecret",
    "ControlMessage",
    "DeviceOutlet",
    "FormerClientSecret",
    "IdentityBinding",
    "Invitation",
    "Issuer",
    "KeptEntry",
    "LegacyAddress",
    "LegacyNetwork",
    "MqttTopic",
    "NodeSample",
    "OperatorIdentity",
    "Peer",
    "PeerMessage",
    "PeerStub",
    "PeerSubscription",
    "PoolAddress",
    "ProviderKey",
    "PushEndpoint",
    "Revocation",
    "RoleAccess",
    "RoleOfGroup",
    "SecondFactor",
    "SentInvitation",
    "Session",
    "StoredMessage",
    "Subscription",
    "WebhookHost",
    "Worker",
    "WorkerClaim",
]
