"""Builds the parts of a worker that accept and send invitations, if they are enabled."""

from __future__ import annotations

from functools import partial

from django.conf import settings

from msgnode.bus.notices import Notices
from msgnode.bus.ports import Enforcer
from msgnode.connectors.identity import IdentityConnector
from msgnode.identity.identify_timeout import IdentifyTimeout
from msgnode.invitations import service
from msgnode.invitations.delivery import InvitationDelivery
from msgnode.invitations.guests import Guests
from msgnode.invitations.service import InvitationService
from msgnode.invitations.wire import INVITATION_LEFT
from msgnode.monitoring import connector_figures
from msgnode.sessions.manager import SessionManager
from msgnode.subscriptions.component import SubscriptionComponent

from .base import Base, InvitationRoom
from .devices import http_client
from .subsystem import Subsystem


def invitations(
    base: Base,
    sessions: SessionManager,
    subscriptions: SubscriptionComponent,
    enforcer: Enforcer,
    timeout: IdentifyTimeout,
) -> InvitationRoom:
    """Build what answers users, what delivers invitations, and the rights of guests."""
    if not settings.INVITATIONS["ON"]:
        return InvitationRoom()
    issuer: str = settings.PROVIDER["ISSUER"]
    address = f"domain://idm.{base.domain}"
    voice = Notices(address, IdentityConnector.name, enforcer, base.record.recorder)
    threads = service.threads()
    client = http_client(service.SECONDS, service.MAX_ANSWER)
    answering = InvitationService(base.domain, issuer, base.table, client, threads)
    delivery = InvitationDelivery(issuer, base.table, base.writer, voice)
    guests = Guests(
        threads,
        sessions.sessions,
        subscriptions,
        sessions.missed,
        int(settings.NODE["MAX_ADDRESSES_PER_REQUEST"]),
        timeout.said_who,
    )
    sessions.steps.listeners.append(delivery.stepped)
    sessions.on_identified.append(delivery.identified)
    sessions.on_closed.append(guests.closed)
    sessions.on_handed_off.append(guests.forget)

    async def stop() -> None:
        delivery.stop()
        await answering.stop()

    room = Subsystem(
        load=delivery.load,
        serve=lambda: [guests.watch()],
        handlers={INVITATION_LEFT: delivery.left},
        metrics=partial(connector_figures.invitations, answering, delivery, guests),
        stop=stop,
    )
    return InvitationRoom(guests, answering.answer, (room,))
