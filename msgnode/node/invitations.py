"""Builds the parts of a worker that accept and send invitations, if they are enabled."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from django.conf import settings

from msgnode.bus.notices import Notices
from msgnode.bus.ports import Enforcer, Listener, Recorder
from msgnode.bus.table import RoutingTable
from msgnode.bus.writing import Writer
from msgnode.connectors.identity import IdentityConnector
from msgnode.invitations import service
from msgnode.invitations.delivery import InvitationDelivery
from msgnode.invitations.guests import Guests
from msgnode.invitations.service import InvitationService
from msgnode.sessions.manager import SessionManager
from msgnode.subscriptions.component import SubscriptionComponent

from .devices import http_client


class Invitations(NamedTuple):
    """`service` answers users, and `delivery` delivers the invitations left for them.

    `guests` holds the rights of guests, that is sessions that were invited.
    """

    service: InvitationService
    delivery: InvitationDelivery
    guests: Guests


def invitations(
    accepted: Callable[[Listener], None],
    table: RoutingTable,
    sessions: SessionManager,
    subscriptions: SubscriptionComponent,
    writer: Writer,
    enforcer: Enforcer,
    recorder: Recorder,
) -> Invitations:
    """Build all three; `accepted` is called for a session that has become a guest."""
    domain: str = settings.DOMAIN
    issuer: str = settings.PROVIDER["ISSUER"]
    voice = Notices(f"domain://idm.{domain}", IdentityConnector.name, enforcer, recorder)
    threads = service.threads()
    made = Invitations(
        InvitationService(
            domain, issuer, table, http_client(service.SECONDS, service.MAX_ANSWER), threads
        ),
        InvitationDelivery(issuer, table, writer, voice),
        Guests(
            threads,
            sessions.sessions,
            subscriptions.of,
            subscriptions.end,
            sessions.missed,
            subscriptions.addresses[0],
            int(settings.NODE["MAX_ADDRESSES_PER_REQUEST"]),
            accepted,
        ),
    )
    sessions.steps.listeners.append(made.delivery.stepped)
    sessions.on_identified.append(made.delivery.identified)
    sessions.on_closed.append(made.guests.closed)
    sessions.on_handed_off.append(made.guests.forget)
    return made
