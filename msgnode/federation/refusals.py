"""The errors for senders whose message does not reach a peer."""

from __future__ import annotations

from msgnode.core.errors import BadGateway, Forbidden, GatewayTimeout, NodeError, Unavailable
from msgnode.models import Peer

from . import deno
from .store import PeerRow


def refusal_of(row: PeerRow) -> NodeError:
    """Why nothing is sent to a peer with a row."""
    domain, decision = row.domain, Peer.Decision
    if row.decision == decision.BLOCKED:
        return Forbidden(f"This node exchanges no messages with {domain}.")
    if row.decision == decision.PAUSED:
        return Unavailable(f"The exchange of messages with {domain} is paused.")
    if row.is_approved and row.is_unsigned:
        return BadGateway(f"The stub of {domain} cannot be used: it is not signed as it must be.")
    if row.is_served:
        if not deno.find():
            return BadGateway(f"The stub of {domain} cannot be run: {deno.MISSING}")
        return Unavailable(f"The node of {domain} is not connected yet: try again.")
    if row.discovery:
        return GatewayTimeout(f"The node of {domain} cannot be used: {row.discovery}")
    return Unavailable(f"{domain} waits for the operator of this node.")
