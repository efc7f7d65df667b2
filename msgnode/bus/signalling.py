"""Invitations to a P2P connection: only for connected runtimes, and noted at the inviter."""

from __future__ import annotations

from msgnode.core.errors import Unavailable

from .ports import Listener, Requester


def invite(session: Requester, to: str, found: tuple[Listener, ...]) -> None:
    """Note an invitation, unless its runtime is disconnected.

    It would be useless by the time the runtime returns, and the inviter waits for an answer.

    Args:
        session: the inviter.
        to: the address of the P2P stub.
        found: the listeners at that address.

    Raises:
        Unavailable: the runtime has no connection at the moment.
        TooMany: the session has invited too many.
    """
    if not any(listener.is_connected for listener in found):
        raise Unavailable(f"{to} is not connected at the moment; an invitation does not wait.")
    session.has_invited(to)
