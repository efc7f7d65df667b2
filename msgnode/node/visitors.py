"""Builds the part of a worker that limits visitors: runtimes of other domains."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from django.conf import settings

from msgnode.core.addresses import home_domain
from msgnode.sessions.manager import SessionManager
from msgnode.sessions.session import LiveSession
from msgnode.sessions.visitors import VisitorLimits, Visitors
from msgnode.subscriptions.component import SubscriptionComponent

if TYPE_CHECKING:
    from msgnode.identity.service import IdentityService


def visitors(
    sessions: SessionManager,
    subscriptions: SubscriptionComponent,
    identities: IdentityService,
) -> Visitors:
    """Build it; it observes every session and decides which visitors are admitted."""
    limits = settings.VISITORS
    made = Visitors(
        VisitorLimits(
            limits["TOTAL"],
            limits["PER_DOMAIN"],
            limits["PER_SOURCE"],
            limits["IDLE_SECONDS"],
            limits["SECONDS"],
        ),
        home_domain(settings.DOMAIN),
        identities.authenticator.modes.refuses,
        subscriptions.of,
        partial(_end, sessions),
    )
    sessions.on_identified.append(made.entered)
    sessions.on_closed.append(made.closed)
    sessions.on_handed_off.append(made.left)
    return made


def _end(sessions: SessionManager, session: LiveSession, code: int, text: str) -> None:
    sessions.end(session, code, f"the visit is over: {text}", told=f"the visit is over: {text}")
