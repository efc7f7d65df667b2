"""What there is of the other workers before this one has a session: links, directory, questions.

The rooms of this worker are given what they need of it when they are made. What needs the rooms
(sessions that move, what is told of them) is made last: cluster.py.
"""

from __future__ import annotations

from msgnode.bus.table import RoutingTable
from msgnode.redis.directory import Directory

from .directory_presence import DirectoryPresence
from .homes import Homes
from .identity_lookup import IdentityLookup
from .interest import Interest
from .other_workers import OtherWorkers
from .own_names import OwnNames
from .rpc import PeerRpc
from .transport import PeerTransport


class PeerNetwork:
    """One instance per worker of a node that has several."""

    def __init__(self, transport: PeerTransport, directory: Directory, table: RoutingTable) -> None:
        self.transport = transport
        self.directory = directory
        self.others = OtherWorkers(transport.me.epoch, transport.peers)
        self.presence = DirectoryPresence(transport.timeout)
        self.names = OwnNames(
            directory, table, transport, self.others.is_retired, self.others.is_dead
        )
        self.interest = Interest(directory, table, transport, self.names)
        self.rpc = PeerRpc(transport)
        self.identities = IdentityLookup(transport, self.rpc)
        self.homes = Homes(
            directory,
            transport,
            self.names,
            self.interest,
            self.knows_all,
            self.others.is_retired,
        )

    @property
    def meets_others(self) -> bool:
        """Whether the ways to the other workers are there: the layer and the directory."""
        return self.transport.hears_itself and self.presence.is_filled

    def knows_all(self) -> bool:
        """Whether all that take sessions can be heard, so that who is not known is nobody."""
        return self.meets_others and self.transport.knows(self.others.ready)
