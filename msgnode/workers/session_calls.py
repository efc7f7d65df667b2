"""Calls to whichever other worker has a session: what a request about it is answered there."""

from __future__ import annotations

from .replication import TableReplicator
from .rpc import PeerRpc


class SessionCalls:
    """One instance per worker."""

    def __init__(self, rpc: PeerRpc, replicator: TableReplicator) -> None:
        self._rpc = rpc
        self._replicator = replicator

    def hears(self, session_id: str) -> bool:
        """Whether the worker that has a session is heard of."""
        remote = self._replicator.remotes.get(session_id)
        return remote is not None and remote.peer.is_up

    async def call(self, session_id: str, kind: str, text: bytes, seconds: float) -> bytes | None:
        """What that worker answers within so many seconds; None if it does not."""
        remote = self._replicator.remotes.get(session_id)
        if remote is None:
            return None
        return await self._rpc.call(remote.peer, kind, text, seconds)
