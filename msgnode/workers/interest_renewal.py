"""Queries watched names again where the knowledge of who is there may be incomplete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from .interest import Interest
from .own_names import OwnNames, in_parts
from .remote_sessions import RemoteSessions
from .transport import PeerTransport


class InterestRenewal:
    """One instance per worker.

    Args:
        interest: the watched names.
        names: the names of this worker's sessions.
        remotes: the known sessions of other workers.
        transport: tells whether this worker accepts sessions.
        look_for: queries in the background who is at some names.
    """

    def __init__(
        self,
        interest: Interest,
        names: OwnNames,
        remotes: RemoteSessions,
        transport: PeerTransport,
        look_for: Callable[[Collection[str]], None],
    ) -> None:
        self._interest = interest
        self._names = names
        self._remotes = remotes
        self._transport = transport
        self._look_for = look_for

    def ask_again(self, name: str) -> None:
        """Query a name again, because what is known of it may be incomplete."""
        if self._interest.watches(name):
            self._interest.doubt([name])
            self._look_for([name])

    def handed_off(self, held: Collection[str], heard: Collection[str], epoch: str) -> None:
        """Note a session that has moved to another worker, and is still in this table."""
        self._names.gone(held, heard, epoch)
        if self._transport.takes:  # else nothing more is sent from here
            self._look_for(self._interest.expect_all({*held, *heard}))

    async def enter_again(self, pause: float) -> None:
        """Enter this worker everywhere once more. Raises RedisFault."""
        interest = self._interest
        for some in in_parts(interest.watched):
            found = await interest.watch([each for each in some if interest.watches(each)])
            new = [each for each, epochs in found.items() if epochs - self._known_at(each)]
            interest.doubt(new)
            self._look_for(new)
            await asyncio.sleep(pause)

    def look_after(self) -> None:
        """Retry what has failed."""
        if missed := self._interest.missed:
            self._look_for(missed)

    def _known_at(self, name: str) -> set[str]:
        """The workers whose sessions the routing table has at a name."""
        return {each.peer.epoch for each in self._remotes.at(name)}
