"""Who is logged in somewhere else: asked of the other workers where nobody is known by a name here.

What they tell of their sessions may be on its way still, after the answer that opened one.
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
    """One instance per worker; `here` finds who is logged in by what this worker knows."""

    def __init__(
        self, transport: PeerTransport, rpc: PeerRpc, here: Callable[[str], Identity | None]
    ) -> None:
        self._transport = transport
        self._rpc = rpc
        self._here = here
        rpc.calls[_KIND] = self._answer

    async def find(self, name: str) -> Identity | None:
        """The subject of this name, if one is logged in at another worker.

        Raises:
            Unavailable: a worker does not answer, and the others know of nobody.
        """
        peers = list(self._transport.peers.values())
        answers = await asyncio.gather(
            *(self._rpc.call(peer, _KIND, name.encode(), LIMIT) for peer in peers)
        )
        found = [msgspec.msgpack.decode(each, type=Identity | None) for each in answers if each]
        identity = next((each for each in found if each is not None), None)
        if identity is None and len(found) < len(peers):
            raise Unavailable("Whether somebody is known by that name is not known just now.")
        return identity

    async def _answer(self, text: bytes) -> bytes:
        return msgspec.msgpack.encode(self._here(text.decode()))
