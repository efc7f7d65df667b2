"""Asks the other workers for an identity that is not known by a name here.

Their announcements of sessions may still be on the way when the answer that opened one has arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from msgnode.core.errors import Unavailable
from msgnode.core.identity import Identity

from .rpc import PeerRpc
from .transport import PeerTransport

LIMIT = 1.0
_KIND = "identity"


class IdentityLookup:
    """Queries the others. One instance per worker."""

    def __init__(self, transport: PeerTransport, rpc: PeerRpc) -> None:
        self._transport = transport
        self._rpc = rpc

    async def find(self, name: str) -> Identity | None:
        """The subject with this name, if it is logged in at another worker.

        Raises:
            Unavailable: a worker does not answer, and the others know nobody.
        """
        peers = list(self._transport.peers.values())
        answers = await asyncio.gather(
            *(self._rpc.call(peer, _KIND, name.encode(), LIMIT) for peer in peers)
        )
        found = [msgspec.msgpack.decode(each, type=Identity | None) for each in answers if each]
        identity = next((each for each in found if each is not None), None)
        if identity is None and len(found) < len(peers):
            raise Unavailable("The node cannot check at the moment whether that name is known.")
        return identity


def answer_lookups(rpc: PeerRpc, here: Callable[[str], Identity | None]) -> None:
    """Answer queries from now on; `here` finds an identity known to this worker."""

    async def answer(name: bytes) -> bytes:
        return msgspec.msgpack.encode(here(name.decode()))

    rpc.answer_calls(_KIND, answer)
