"""Invitations to a P2P connection: for runtimes that are there, and remembered with who invites."""

from __future__ import annotations

from msgnode.core.errors import Unavailable

from .ports import Listener, Requester


def invite(session: Requester, to: str, found: tuple[Listener, ...]) -> None:
    """Note an invitation, unless it would wait for its runtime's return.

    What it offers is of no use by then, and who invites waits for an answer.

    Raises:
        Unavailable: the runtime has no connection at the moment.
        TooMany: the session has invited too many.
    """
    if not any(listener.is_connected for listener in found):
        raise Unavailable(f"{to} is not connected at the moment; an invitation does not wait.")
    session.has_invited(to)
