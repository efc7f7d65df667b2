"""Makes the options of each package from the settings."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from msgnode.bus.open_requests import RequestLimits
from msgnode.core.addresses import home_domain
from msgnode.sandbox.process import SandboxLimits
from msgnode.sessions.budgets import AnswerBudget
from msgnode.sessions.connection import ConnectionSettings
from msgnode.sessions.flow_control import FlowLimits
from msgnode.sessions.session_factory import SessionSettings
from msgnode.sessions.store import SHARE_OF_A_SOURCE, ClosedSessions
from msgnode.traffic.recorder import RecordOptions, raw_url


def request_limits() -> RequestLimits:
    """The limits of open requests."""
    limits: dict[str, Any] = settings.NODE
    return RequestLimits(capacity=limits["MAX_OPEN_REQUESTS"])


def session_settings() -> SessionSettings:
    """The options of sessions."""
    limits: dict[str, Any] = settings.NODE
    return SessionSettings(
        resume=settings.RESUME,
        shares=settings.SHARE_RUNTIME_URL,
        stores=settings.STORE_FOR_DETACHED,
        grace=limits["GRACE_PERIOD"],
        outbox_bytes=limits["OUTBOX_BYTES"],
        queue_bytes_per_source=limits["MAX_QUEUE_BYTES_PER_SOURCE"],
        queue_bytes=limits["MAX_QUEUE_BYTES"],
        max_sessions=limits["MAX_SESSIONS"],
        max_per_runtime=limits["MAX_SESSIONS_PER_RUNTIME"],
        node_address=f"domain://msg-node.{settings.DOMAIN}",
        request_limits=request_limits(),
    )


def closed_sessions() -> ClosedSessions:
    """The limits on the rows of closed sessions."""
    total = int(settings.NODE["MAX_CLOSED_SESSIONS"])
    return ClosedSessions(total * SHARE_OF_A_SOURCE, total)


def connection_settings(answers: AnswerBudget, names_runtime: bool) -> ConnectionSettings:
    """The options of connections.

    Args:
        answers: the budget of pending answers of all connections.
        names_runtime: whether every runtime must identify itself.
    """
    limits: dict[str, Any] = settings.NODE
    return ConnectionSettings(
        FlowLimits(
            messages_per_second=limits["MAX_MESSAGES_PER_SECOND"],
            bytes_per_second=limits["MAX_BYTES_PER_SECOND"],
            answers=answers,
        ),
        handshake_timeout=limits["HANDSHAKE_TIMEOUT"],
        names_runtime=names_runtime,
        home=home_domain(settings.DOMAIN),
    )


def record_options() -> RecordOptions:
    """The options of the traffic record."""
    options = settings.RECORD
    return RecordOptions(
        url=raw_url(options["URL"]),
        flush_seconds=options["FLUSH_SECONDS"],
        buffer_rows=options["BUFFER_ROWS"],
        max_bytes=options["MAX_BYTES"],
        min_free=options["MIN_FREE_BYTES"],
        pseudonym_key=options["PSEUDONYM_KEY"].encode(),
    )


def sandbox_limits() -> SandboxLimits:
    """The limits of each sandbox."""
    sandbox = settings.SANDBOX
    return SandboxLimits(
        silence=sandbox["SILENCE_SECONDS"],
        max_frame=int(settings.NODE["MAX_FRAME_BYTES"]),
        wraps=sandbox["BUBBLEWRAP"],
    )
