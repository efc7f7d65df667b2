"""A hyperty runtime for Python: MiniBUS, MessageBUS, protocol on the fly, sandboxes.

What is exported is imported when it is first asked for: a sandbox needs little of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cards import Card, CardError
    from .catalogue import Catalogue
    from .descriptor import check_descriptor
    from .faults import Fault
    from .graph.contacts import Contact
    from .graph.errors import GraphError
    from .graph.graph_connector import Found, GraphConnector
    from .graph.records import Person, UserId
    from .hyperties import AnswerError, Explanation, Hyperty, Refusal
    from .invitations import Endpoint, Invitation, InvitationError, Invitations, Sent
    from .loader import Loader, LoadError
    from .log_in import IdentityEvent
    from .message_bus import MessageBus
    from .messages import BadMessage, Message
    from .minibus import MiniBus
    from .open_id import OpenId, OpenIdError, openid
    from .p2p.settings import P2PSettings, P2PTimers
    from .pipeline import Pipeline
    from .policy import PolicyEngine, policy_handler
    from .protostub import Protostub, activate
    from .qos import Qos, QosRefused, Reservation
    from .resolver import Resolver
    from .runtime import Runtime
    from .settings import Limits, Settings, __version__
    from .stub_list import StubList
    from .syncher.errors import SyncError
    from .syncher.observer import DataObjectObserver
    from .syncher.reporter import DataObjectReporter
    from .syncher.syncher import Syncher

_WHERE = {
    "AnswerError": "hyperties",
    "BadMessage": "messages",
    "Card": "cards",
    "CardError": "cards",
    "Catalogue": "catalogue",
    "Contact": "graph.contacts",
    "DataObjectObserver": "syncher.observer",
    "DataObjectReporter": "syncher.reporter",
    "Endpoint": "invitations",
    "Explanation": "hyperties",
    "Fault": "faults",
    "Found": "graph.graph_connector",
    "GraphConnector": "graph.graph_connector",
    "GraphError": "graph.errors",
    "Hyperty": "hyperties",
    "IdentityEvent": "log_in",
    "Invitation": "invitations",
    "InvitationError": "invitations",
    "Invitations": "invitations",
    "Limits": "settings",
    "LoadError": "loader",
    "Loader": "loader",
    "Message": "messages",
    "MessageBus": "message_bus",
    "MiniBus": "minibus",
    "OpenId": "open_id",
    "OpenIdError": "open_id",
    "P2PSettings": "p2p.settings",
    "P2PTimers": "p2p.settings",
    "Person": "graph.records",
    "Pipeline": "pipeline",
    "PolicyEngine": "policy",
    "Protostub": "protostub",
    "Qos": "qos",
    "QosRefused": "qos",
    "Refusal": "hyperties",
    "Reservation": "qos",
    "Resolver": "resolver",
    "Runtime": "runtime",
    "Sent": "invitations",
    "Settings": "settings",
    "StubList": "stub_list",
    "SyncError": "syncher.errors",
    "Syncher": "syncher.syncher",
    "UserId": "graph.records",
    "__version__": "settings",
    "activate": "protostub",
    "check_descriptor": "descriptor",
    "openid": "open_id",
    "policy_handler": "policy",
}

__all__ = [
    "AnswerError",
    "BadMessage",
    "Card",
    "CardError",
    "Catalogue",
    "Contact",
    "DataObjectObserver",
    "DataObjectReporter",
    "Endpoint",
    "Explanation",
    "Fault",
    "Found",
    "GraphConnector",
    "GraphError",
    "Hyperty",
    "IdentityEvent",
    "Invitation",
    "InvitationError",
    "Invitations",
    "Limits",
    "LoadError",
    "Loader",
    "Message",
    "MessageBus",
    "MiniBus",
    "OpenId",
    "OpenIdError",
    "P2PSettings",
    "P2PTimers",
    "Person",
    "Pipeline",
    "PolicyEngine",
    "Protostub",
    "Qos",
    "QosRefused",
    "Refusal",
    "Reservation",
    "Resolver",
    "Runtime",
    "Sent",
    "Settings",
    "StubList",
    "SyncError",
    "Syncher",
    "UserId",
    "__version__",
    "activate",
    "check_descriptor",
    "openid",
    "policy_handler",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)
